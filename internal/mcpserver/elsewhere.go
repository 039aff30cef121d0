package mcpserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
)

// The end of a session, and of one call, can come to another replica than the one that performs the calls. Each replica tells all
// others: "S" for the end of the session with the mark S, and "S.C" for that of its request with the mark C.

// mark stands for the id of a session, or of a request of one, in what replicas tell each other: ids can be long, and those of
// sessions are secret.
func mark(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// markOf returns that of the id of a request.
func markOf(id json.RawMessage) string {
	if jsonscan.IsKind(id, '"') {
		return mark("text " + jsonscan.Text(id))
	}
	return mark(string(id))
}

// ring tells the other replicas of a message of the org.
func (h *Handler) ring(orgID, message string) {
	if h.o.Ring != nil {
		h.o.Ring(orgID, message)
	}
}

// Heard does what a message says that Options.Ring of another replica was called with. It does not wait.
func (h *Handler) Heard(orgID, message string) {
	if message == "" { // messages may have been missed; nobody has them any more
		return
	}
	name, request, one := strings.Cut(message, ".")
	if !one {
		h.forget(name)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	for _, s := range h.sessions.all(orgID) {
		if mark(s.id) != name {
			continue
		}
		h.tasks.Go(func() {
			if one {
				h.cancel(s, request)
				return
			}
			h.sessions.remove(s)
			s.end()
		})
	}
}

// cancel lets the SDK cancel the request of a session with the mark, if it is in progress.
func (h *Handler) cancel(s *session, request string) {
	id, ok := s.inProgress(request)
	key, valid := h.o.Orgs.Caller(s.org, s.principal)
	if !ok || !valid {
		return
	}
	body := fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id)
	if err := h.say(h.life, key, s, true, body); err != nil {
		h.o.Log.Warn("a call over MCP that its client has cancelled on another replica goes on", "org", s.org, "error", err)
	}
}

// begin notes that a request of the session is in progress, until the function that it returns is called.
func (s *session) begin(id json.RawMessage) (end func()) {
	if len(id) == 0 {
		return func() {}
	}
	at := markOf(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requests == nil {
		s.requests = map[string]json.RawMessage{}
	}
	s.requests[at] = exactID(id)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.requests, at)
	}
}

// inProgress returns the id of the request with the mark, as the SDK knows it.
func (s *session) inProgress(request string) (id json.RawMessage, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok = s.requests[request]
	return id, ok
}

// say gives the SDK a message as if the client of the session had sent it. known says that the SDK knows the session.
func (h *Handler) say(ctx context.Context, key caller.Caller, s *session, known bool, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/mcp", bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+requestName) // the key is known
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if known {
		r.Header.Set(sessionHeader, s.id)
	}
	w := &unread{header: http.Header{}}
	if err := h.serve(w, r, &request{caller: key, server: s.server, session: s}, message{}, h.stateful); err != nil {
		return err
	}
	if w.status >= http.StatusBadRequest {
		return fmt.Errorf("an MCP session that has begun on another replica cannot be continued: status %d", w.status)
	}
	return nil
}
