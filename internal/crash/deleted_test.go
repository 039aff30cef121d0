//go:build unix

package crash_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// The gateway dies when the deletion of a session, or of its agent, is stored, and its runs have not been asked to end:
// one that runs, and one that waits for its turn. The next process ends both, and no model is asked for them. // J03 P01
func TestRunsOfADeletedSessionEndAfterACrash(t *testing.T) {
	t.Parallel()
	for _, deleted := range []string{"session", "agent"} {
		t.Run(deleted, func(t *testing.T) {
			t.Parallel()
			gate := make(chan struct{})
			w := newWorld(t, options{script: chatter(gate), tools: []turnpiketest.Tool{{Name: "look", Result: "seen"}}})
			p := w.serve()
			agentID := w.created("/api/agents", `{"name":"a","model":"m"}`)
			session := w.created("/api/agents/"+agentID+"/sessions", "{}")
			var clients sync.WaitGroup
			t.Cleanup(clients.Wait)
			for i, busy := range []string{"reject", "enqueue"} {
				clients.Go(func() { // its stream breaks off
					body := fmt.Sprintf(`{"message":%q,"session_id":%q,"when_busy":%q}`, busy, session, busy)
					_, _, _ = w.asOwner(t.Context(), http.MethodPost, "/api/agents/"+agentID+"/run/stream", body, "key of "+busy, nil)
				})
				eventually(t, "the message is stored", func() bool { return len(strings.Fields(w.inbox(session))) > i })
			}
			eventually(t, "the model is asked", func() bool { return len(w.provider.transcripts()) > 0 })
			p.kill()
			clients.Wait()
			close(gate) // a run that went on would be answered
			w.inStore(func(ctx context.Context, s *database.Store) (err error) {
				if deleted == "agent" {
					return s.RemoveAgent(ctx, "default", agentID, org.Author{})
				}
				_, err = s.RemoveSession(ctx, "default", session, false)
				return err
			})

			w.serve()
			eventually(t, "both runs are cancelled", func() bool { return w.stateCounts()["cancelled"] == 2 })
			for id := range w.runs() {
				if n := w.ends(id); n != 1 {
					t.Errorf("run %s has %d ends", id, n)
				}
			}
			if n := len(w.provider.transcripts()); n != 1 {
				t.Errorf("the model was asked %d times, want once, before the crash", n)
			}
		})
	}
}

// inStore changes the store while no gateway runs.
func (w *world) inStore(change func(context.Context, *database.Store) error) {
	w.Helper()
	s, err := database.Open(w.Context(), database.Options{Path: filepath.Join(w.data, "turnpike.db")})
	if err != nil {
		w.Fatal(err)
	}
	if err := change(w.Context(), s); err != nil {
		w.Error(err)
	}
	if err := s.Close(); err != nil {
		w.Error(err)
	}
}
