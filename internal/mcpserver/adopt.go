package mcpserver

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// With several replicas a request of a session may come to one that does not know it. The id of a session
// therefore says, sealed for the org and the key, which revision of the protocol the client speaks. A replica
// adopts such a session: it begins it as the client has begun it elsewhere. No state is shared.

// sealedFor is how long an id can be adopted.
const sealedFor = 24 * time.Hour

// maxEnded is how many ended sessions are remembered, which are not adopted again.
const maxEnded = 10_000

const idPrefix = "mcp_"

// newID returns the id of a session that begins with the message.
func (h *Handler) newID(caller caller.Caller, body []byte) string {
	if h.o.Seals == nil {
		return id.New(idPrefix)
	}
	var m struct {
		Params struct {
			Revision string `json:"protocolVersion"`
		} `json:"params"`
	}
	_ = json.Unmarshal(body, &m) // the SDK refuses what is not valid
	text := strconv.FormatInt(h.o.Now().Unix(), 10) + " " + m.Params.Revision
	sealed, err := h.o.Seals.Seal(caller.Org.ID, sealName(caller), secret.NewValue(text))
	if err != nil || len(m.Params.Revision) > len(sessionless) {
		return id.New(idPrefix)
	}
	return idPrefix + base64.RawURLEncoding.EncodeToString(sealed)
}

// sealName binds an id to the key.
func sealName(caller caller.Caller) string { return "mcp session of " + caller.Principal.ID }

// revisionOf returns the revision that the client of a session asked for when the session began; false if the id
// is not one that a replica has given to the key, or is too old.
func (h *Handler) revisionOf(caller caller.Caller, name string) (revision string, ok bool) {
	text, prefixed := strings.CutPrefix(name, idPrefix)
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if h.o.Seals == nil || !prefixed || err != nil {
		return "", false
	}
	value, err := h.o.Seals.Open(caller.Org.ID, sealName(caller), sealed)
	if err != nil {
		return "", false
	}
	at, revision, _ := strings.Cut(value.Reveal(), " ")
	began, err := strconv.ParseInt(at, 10, 64)
	return revision, err == nil && h.o.Now().Sub(time.Unix(began, 0)) < sealedFor
}

// enter returns the key's session with the id, with one more open request.
func (h *Handler) enter(r *http.Request, caller caller.Caller, name string) (*session, error) {
	if s := h.sessions.enter(caller.Org.ID, caller.Principal.ID, name); s != nil {
		return s, nil
	}
	revision, ok := h.revisionOf(caller, name)
	if !ok {
		return nil, unknownSession()
	}
	h.adopting.Lock() // two requests of the session may come at the same time
	defer h.adopting.Unlock()
	if s := h.sessions.enter(caller.Org.ID, caller.Principal.ID, name); s != nil {
		return s, nil
	}
	if _, over := h.ended[mark(name)]; over {
		return nil, unknownSession()
	}
	s := h.newSession(caller, name)
	s.joining = true
	if err := h.sessions.add(s); err != nil {
		s.cancel()
		return nil, err
	}
	if err := h.rejoin(r, caller, s, revision); err != nil {
		h.sessions.remove(s)
		s.end()
		return nil, err
	}
	h.sessions.joined(s)
	return s, nil
}

// rejoin makes the SDK begin a session that has begun elsewhere.
func (h *Handler) rejoin(r *http.Request, caller caller.Caller, s *session, revision string) error {
	hello, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": "turnpike-adopts", "method": "initialize", // no id of the client, whose requests may come meanwhile
		"params": map[string]any{
			"protocolVersion": revision, "capabilities": struct{}{}, "clientInfo": map[string]string{"name": "adopted", "version": "1"},
		},
	})
	if err != nil {
		return err
	}
	if err := h.say(r.Context(), caller, s, false, hello); err != nil {
		return err
	}
	return h.say(r.Context(), caller, s, true, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
}

// unread is an answer that nobody reads.
type unread struct {
	header http.Header
	status int
}

// Header implements http.ResponseWriter.
func (u *unread) Header() http.Header { return u.header }

// Write implements http.ResponseWriter.
func (u *unread) Write(p []byte) (int, error) { return len(p), nil }

// WriteHeader implements http.ResponseWriter.
func (u *unread) WriteHeader(status int) { u.status = status }

// Flush implements http.Flusher.
func (u *unread) Flush() {}

// forget notes that the session with the mark has ended, so that this replica does not adopt it again.
func (h *Handler) forget(name string) {
	if h.o.Seals == nil {
		return
	}
	h.adopting.Lock()
	defer h.adopting.Unlock()
	if len(h.ended) >= maxEnded {
		for other := range h.ended {
			delete(h.ended, other)
			break
		}
	}
	h.ended[name] = struct{}{}
}
