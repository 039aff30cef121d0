package mcpserver

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

func newTestSession(orgID, id string) *session {
	s := &session{id: id, org: orgID, principal: "k", server: mcp.NewServer(&mcp.Implementation{Name: "t", Version: "1"}, nil)}
	s.life, s.cancel = context.WithCancel(context.Background())
	return s
}

// An org with too many sessions loses the one that was idle for longest. If all are in use, one more
// is refused. Other orgs are not concerned.
func TestSessionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all sessions
		var first []*session
		for i := range MaxSessionsPerOrg {
			s := newTestSession("a", fmt.Sprint("s", i))
			if err := all.add(s); err != nil {
				t.Fatal(err)
			}
			first = append(first, s)
			time.Sleep(time.Second)
		}
		if err := all.add(newTestSession("a", "refused")); fault.From(err).Code != fault.Limited {
			t.Errorf("one more session than the limit: %v", err)
		}
		all.leave(first[7])
		time.Sleep(time.Second)
		all.leave(first[3])
		if err := all.add(newTestSession("a", "more")); err != nil {
			t.Errorf("an idle session does not make room: %v", err)
		}
		if all.enter("a", "k", "s7") != nil || first[7].life.Err() == nil {
			t.Error("the session that was idle for longest has not ended")
		}
		if all.enter("a", "k", "s3") == nil || all.enter("a", "k", "more") == nil {
			t.Error("another session has ended")
		}
		if err := all.add(newTestSession("b", "other")); err != nil || all.size() != MaxSessionsPerOrg+1 {
			t.Errorf("another org: %v, %d sessions", err, all.size())
		}
		for i := all.size(); i < MaxSessions; i++ {
			if err := all.add(newTestSession(fmt.Sprint("org", i/MaxSessionsPerOrg), fmt.Sprint("x", i))); err != nil {
				t.Fatal(err)
			}
		}
		if err := all.add(newTestSession("late", "late")); fault.From(err).Code != fault.Limited || all.size() != MaxSessions {
			t.Errorf("one more session than the gateway has room for: %v", err)
		}
	})
}

// A session without a request for 1,800 seconds ends; one with an open request does not.
func TestIdleSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all sessions
		idle, open := newTestSession("a", "idle"), newTestSession("a", "open")
		for _, s := range []*session{idle, open} {
			if err := all.add(s); err != nil {
				t.Fatal(err)
			}
		}
		all.leave(idle)
		time.Sleep(IdleTimeout - time.Nanosecond)
		if got := all.idle(time.Now()); len(got) > 0 {
			t.Errorf("%d sessions end too early", len(got))
		}
		time.Sleep(time.Nanosecond)
		if got := all.idle(time.Now()); len(got) != 1 || got[0] != idle || all.size() != 1 {
			t.Errorf("%d sessions have ended, and %d are left", len(got), all.size())
		}
		if all.enter("a", "other", "open") != nil || all.enter("b", "k", "open") != nil || all.enter("a", "k", "") != nil {
			t.Error("a session is found by another key, by another org or without an id")
		}
	})
}
