package mcpserver

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// The limits on sessions. A request that listens for changes counts as one.
const (
	MaxSessions       = 5000
	MaxSessionsPerOrg = 500
	IdleTimeout       = 1800 * time.Second
	sweepEvery        = 30 * time.Second
)

// session is a session of a client, or a request that listens for changes.
type session struct {
	id, org, principal string // id is "" for a request
	server             *mcp.Server
	life               context.Context // of its calls
	cancel             context.CancelFunc

	// Guarded by sessions.mu.
	open    int       // requests of it that are in progress
	used    time.Time // when the latest request began or ended
	joining bool      // it is being adopted, and takes no request yet

	mu       sync.Mutex
	requests map[string]json.RawMessage // ids of those in progress, as the SDK knows them, by mark
	shown    string                     // the digest of the list that the client was sent last; "" = none
}

// end ends the session, and its requests.
func (s *session) end() {
	s.cancel()
	for one := range s.server.Sessions() {
		_ = one.Close() // its client gets what was answered
	}
}

// lists notes that the client is sent the list with the digest.
func (s *session) lists(digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown = digest
}

// listed reports whether the client was sent a list, as far as this process knows.
func (s *session) listed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown != ""
}

// differs notes the digest of the list as it is now, and reports whether the client has another.
func (s *session) differs(digest string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shown == "" || s.shown == digest {
		return false
	}
	s.shown = digest
	return true
}

// notify tells the client that its list of tools has changed. The SDK does so when the tools of its
// server change, which nobody is shown: see [Handler.receive].
func (s *session) notify() {
	s.server.AddTool(&mcp.Tool{Name: "changed", InputSchema: json.RawMessage(`{"type":"object"}`)}, nil)
}

// sessions are the sessions of all orgs. The zero value has none.
type sessions struct {
	mu    sync.Mutex
	count int
	of    map[string]map[*session]struct{} // by org
	byID  map[string]*session
}

// add adds a session with one open request, if there is room for it. If the org has no room, its
// session that was idle for longest ends.
func (t *sessions) add(s *session) error {
	t.mu.Lock()
	var evicted *session
	if len(t.of[s.org]) >= MaxSessionsPerOrg || t.count >= MaxSessions {
		if evicted = t.oldest(s.org); evicted == nil {
			t.mu.Unlock()
			return tooMany()
		}
		t.drop(evicted)
	}
	if t.of == nil {
		t.of, t.byID = map[string]map[*session]struct{}{}, map[string]*session{}
	}
	if t.of[s.org] == nil {
		t.of[s.org] = map[*session]struct{}{}
	}
	t.of[s.org][s] = struct{}{}
	t.count++
	if s.id != "" {
		t.byID[s.id] = s
	}
	s.open, s.used = 1, time.Now()
	t.mu.Unlock()
	if evicted != nil {
		evicted.end()
	}
	return nil
}

func tooMany() error {
	return fault.New(fault.Limited, "too_many_sessions", "too many MCP sessions are in use: the limits are %d of an org and %d of the gateway; "+
		"end sessions with DELETE /mcp", MaxSessionsPerOrg, MaxSessions)
}

// oldest returns the org's session without open requests that was used least recently; nil = there
// is none. It is called with mu held.
func (t *sessions) oldest(org string) (found *session) {
	for s := range t.of[org] {
		if s.open == 0 && (found == nil || s.used.Before(found.used)) {
			found = s
		}
	}
	return found
}

// drop removes a session. It is called with mu held.
func (t *sessions) drop(s *session) {
	if _, ok := t.of[s.org][s]; !ok {
		return
	}
	if delete(t.of[s.org], s); len(t.of[s.org]) == 0 {
		delete(t.of, s.org)
	}
	delete(t.byID, s.id)
	t.count--
}

// remove removes a session that has ended.
func (t *sessions) remove(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(s)
}

// enter returns the key's session with the id, with one more open request; nil = it has none, or one that is being adopted.
func (t *sessions) enter(org, principal, id string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byID[id]
	if s == nil || s.joining || s.org != org || s.principal != principal {
		return nil
	}
	s.open++
	s.used = time.Now()
	return s
}

// joined lets requests of an adopted session enter.
func (t *sessions) joined(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.joining = false
}

// leave ends a request of the session.
func (t *sessions) leave(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.open--
	s.used = time.Now()
}

// all returns the sessions of an org; of all orgs if it is "".
func (t *sessions) all(org string) (out []*session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for of, some := range t.of {
		if org != "" && of != org {
			continue
		}
		for s := range some {
			out = append(out, s)
		}
	}
	return out
}

// idle removes the sessions that have had no request for the time, and returns them.
func (t *sessions) idle(now time.Time) (out []*session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, some := range t.of {
		for s := range some {
			if s.open == 0 && now.Sub(s.used) >= IdleTimeout {
				out = append(out, s)
			}
		}
	}
	for _, s := range out {
		t.drop(s)
	}
	return out
}

// size returns how many sessions there are.
func (t *sessions) size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}
