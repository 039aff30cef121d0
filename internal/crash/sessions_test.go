//go:build unix

package crash_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// sessionCases kill the gateway where it has accepted an input, delivers it and uses it, and where a turn ends
// and the next one begins.
func sessionCases(interrupts bool) (points []string) {
	each := func(times int, all ...crash.Point) {
		for _, p := range all {
			for n := 1; n <= times; n++ {
				points = append(points, nth(p, n))
			}
		}
	}
	each(3, crash.AfterAccept) // the message, the one that waits, and this one when its turn begins
	each(2, crash.BeforeFinish, crash.AfterFinish)
	each(1, crash.BeforeInput, crash.AfterClaim)
	if interrupts {
		each(1, crash.AfterCancel)
		return points
	}
	each(1, crash.AfterDelivery, crash.AfterCallSend, crash.AfterResult)
	each(3, crash.AfterTurn, crash.AfterModelSend)
	return points
}

// chatter is the conversation of the sessions: the first answer makes a call, unless it is interrupted, and the others
// say to what they answer.
func chatter(hold <-chan struct{}) script {
	return func(transcript []message) turn {
		asked, answered := "", false
		for _, m := range transcript {
			if answered = answered || m.Role == "assistant"; m.Role == "user" {
				asked = m.Content
			}
		}
		if !answered && asked != "interrupt" {
			return turn{text: []string{"Let me ", "look."}, calls: []call{{"c1", "look", `{"n":7}`}}, hold: hold}
		}
		return turn{text: []string{"To ", asked}}
	}
}

// asOwner sends a request as the owner and decodes the answer into out; nil = it is not decoded.
func (w *world) asOwner(ctx context.Context, method, path, body, key string, out any) (status int, text string, err error) {
	req, err := http.NewRequestWithContext(ctx, method, w.base()+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+ownKey)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && out != nil {
		err = json.Unmarshal(data, out)
	}
	return resp.StatusCode, string(data), err
}

// created creates something and returns its id.
func (w *world) created(path, body string) string {
	w.Helper()
	var out struct{ ID string }
	if status, text, err := w.asOwner(w.Context(), http.MethodPost, path, body, "", &out); err != nil || status != http.StatusCreated {
		w.Fatalf("POST %s: %d %s, %v", path, status, text, err)
	}
	return out.ID
}

// talk sends a message to the session until its stream is complete.
func (w *world) talk(agentID, session, text, busy string) {
	ctx, cancel := context.WithTimeout(w.Context(), 2*patience)
	defer cancel()
	body := fmt.Sprintf(`{"message":%q,"session_id":%q,"when_busy":%q}`, text, session, busy)
	for {
		status, stream, err := w.asOwner(ctx, http.MethodPost, "/api/agents/"+agentID+"/run/stream", body, "key of "+text, nil)
		if status == http.StatusOK && err == nil && strings.Contains(stream, `"event":"complete"`) {
			return
		}
		if status >= 400 && status != http.StatusServiceUnavailable && status != http.StatusTooManyRequests {
			w.Errorf("the message %s got %d: %s", text, status, stream)
			return
		}
		if pause(ctx, 25*time.Millisecond) != nil {
			w.Errorf("the message %s was not answered: %d %s, %v", text, status, stream, err)
			return
		}
	}
}

// inbox returns the kinds of the inputs of a session, with … behind those that wait; "" = nobody answers.
func (w *world) inbox(session string) string {
	ctx, cancel := context.WithTimeout(w.Context(), time.Second)
	defer cancel()
	var out struct {
		Inputs []struct {
			Kind      string
			Processed *string `json:"processed_at"`
		}
	}
	if _, _, err := w.asOwner(ctx, http.MethodGet, "/api/sessions/"+session+"/inputs", "", "", &out); err != nil {
		return ""
	}
	var all []string
	for _, in := range out.Inputs {
		if in.Processed == nil {
			in.Kind += "…"
		}
		all = append(all, in.Kind)
	}
	return strings.Join(all, " ")
}

// said returns what was said in a session.
func (w *world) said(session string) string {
	w.Helper()
	var out struct {
		Messages []struct {
			Role, Content string
			ToolCalls     []json.RawMessage `json:"tool_calls"`
		}
	}
	if status, text, err := w.asOwner(w.Context(), http.MethodGet, "/api/sessions/"+session+"/messages", "", "", &out); err != nil || status != http.StatusOK {
		w.Fatalf("the messages: %d %s, %v", status, text, err)
	}
	var all []string
	for _, m := range out.Messages {
		if len(m.ToolCalls) > 0 {
			m.Content = "call"
		}
		all = append(all, m.Role+" "+m.Content)
	}
	return strings.Join(all, "|")
}

// killedSession plays a session whose gateway is killed at the point: a message, and when the model was asked, others that
// come while it is busy.
func killedSession(t *testing.T, point string, busy ...string) (w *world, session string) {
	gate := make(chan struct{})
	w = newWorld(t, options{script: chatter(gate), tools: []turnpiketest.Tool{{Name: "look", Result: "seen"}}})
	p := w.serve()
	agentID := w.created("/api/agents", `{"name":"a","model":"m"}`)
	session = w.created("/api/agents/"+agentID+"/sessions", "{}")
	p.kill()

	p = w.start(point)
	var clients sync.WaitGroup
	t.Cleanup(clients.Wait)
	clients.Go(func() { w.talk(agentID, session, "one", "reject") })
	clients.Go(func() {
		eventually(t, "the model is asked", func() bool { return len(w.provider.transcripts()) > 0 })
		for i, how := range busy {
			clients.Go(func() { w.talk(agentID, session, how, how) })
			eventually(t, "the message is stored", func() bool { return len(strings.Fields(w.inbox(session))) > i+1 })
		}
		if busy[0] != "interrupt" { // which ends the model call
			close(gate)
		}
	})
	p.wantKilled(t, "which passes "+point)
	w.start("")
	clients.Wait()
	return w, session
}

// wantSession fails the test unless the session has ended well, each input was used once, and each run has one end.
func (w *world) wantSession(session, inbox string, runs int, said ...string) {
	w.Helper()
	eventually(w.T, "the session is idle", func() bool {
		var s struct{ Status string }
		_, _, err := w.asOwner(w.Context(), http.MethodGet, "/api/sessions/"+session, "", "", &s)
		return err == nil && s.Status == "idle"
	})
	if got := w.inbox(session); got != inbox {
		w.Errorf("the inbox is %q, want %q", got, inbox)
	}
	if got := w.said(session); !slices.Contains(said, got) {
		w.Errorf("the session has said\n%s\nwant one of %q", got, said)
	}
	all := w.runs()
	if len(all) != runs {
		w.Errorf("%d runs, want %d", len(all), runs)
	}
	for id := range all {
		if n := w.ends(id); n != 1 {
			w.Errorf("run %s has %d ends", id, n)
		}
	}
}

// A message, one that steers and one that is enqueued, whatever the moment at which the gateway is killed: each is used
// once, in its place, and each turn ends once. // P25
func TestMessagesToABusySessionSurviveCrashes(t *testing.T) {
	t.Parallel()
	for _, point := range sampled(t, sessionCases(false), only) {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w, session := killedSession(t, point, "steer", "enqueue")
			w.wantSession(session, "message steer message", 2,
				"user one|assistant Let me look.|assistant call|tool seen|user steer|assistant To steer|user enqueue|assistant To enqueue",
				"user one|user steer|assistant Let me look.|assistant call|tool seen|assistant To steer|user enqueue|assistant To enqueue") // the first model call was made again
		})
	}
}

// A message that interrupts ends the turn, whatever the moment at which the gateway is killed, and is the next turn. // P25
func TestAnInterruptSurvivesCrashes(t *testing.T) {
	t.Parallel()
	for _, point := range sampled(t, sessionCases(true), only) {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w, session := killedSession(t, point, "interrupt")
			w.wantSession(session, "message interrupt message", 2, "user one|user interrupt|assistant To interrupt",
				"user one|assistant Let me |user interrupt|assistant To interrupt") // what was shown before the end stays
		})
	}
}
