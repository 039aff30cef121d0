//go:build unix

package crash_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// customTool is the endpoint of a custom tool, with the hook after it. It remembers each request.
type customTool struct {
	*httptest.Server

	held chan struct{} // is closed when the request that is not answered has arrived

	mu    sync.Mutex
	hold  string   // the path of the next request that is not answered; "" = all are
	keys  []string // of the calls
	asked int      // the hook
}

// rawResult is what the endpoint answers, and the hook replaces.
const rawResult = "paid with card 4711"

func newCustomTool(t *testing.T, hold string) *customTool {
	t.Helper()
	c := &customTool{held: make(chan struct{}), hold: hold}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answer := rawResult
		c.mu.Lock()
		if r.URL.Path == "/hook" {
			if !strings.Contains(string(body), rawResult) {
				t.Errorf("the hook is asked about %s", body)
			}
			c.asked++
			answer = `{"action":"modify","modified_output":"redacted"}`
		} else {
			c.keys = append(c.keys, r.Header.Get("Idempotency-Key"))
		}
		held := r.URL.Path == c.hold
		if held {
			c.hold = ""
		}
		c.mu.Unlock()
		if held {
			close(c.held)
			<-r.Context().Done() // the gateway is gone
			return
		}
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(c.Close)
	return c
}

// customToolCase kills the gateway at a point of a call of a custom tool with a hook after it, or while the endpoint
// or the hook has a request and does not answer.
type customToolCase struct {
	point crash.Point
	held  string // the path of the request that is not answered; "" = all are, and the point is passed
	class string
	calls [2]int // that the endpoint gets: at least, and at most
	asked [2]int // how often the hook is
	told  string
}

func (c customToolCase) name() string { return c.class + " " + string(c.point) + c.held }

// A request that has been written may not arrive, if the process dies then.
func customToolCases() []customToolCase {
	const lost, redacted = "It may or may not have taken effect.", "redacted"
	none, once, twice := [2]int{0, 0}, [2]int{1, 1}, [2]int{2, 2}
	return []customToolCase{
		{crash.AfterCallIntent, "", "once", none, none, lost},
		{crash.AfterCallSend, "", "once", [2]int{0, 1}, none, lost},
		{"", "/pay", "once", once, none, lost},
		{crash.AfterHookSend, "", "once", once, [2]int{0, 1}, lost},
		{"", "/hook", "once", once, once, lost},
		{crash.AfterHookAnswer, "", "once", once, once, lost},
		{crash.BeforeResult, "", "once", once, once, lost},
		{crash.AfterResult, "", "once", once, once, redacted},
		{crash.BeforeFinish, "", "once", once, once, redacted},
		{crash.AfterCallIntent, "", "keyed", once, once, redacted},
		{crash.AfterCallSend, "", "keyed", [2]int{1, 2}, once, redacted},
		{"", "/pay", "keyed", twice, once, redacted},
		{crash.AfterHookSend, "", "keyed", twice, [2]int{1, 2}, redacted},
		{"", "/hook", "keyed", twice, twice, redacted},
		{crash.AfterHookAnswer, "", "keyed", twice, twice, redacted},
		{crash.BeforeResult, "", "keyed", twice, twice, redacted},
		{crash.AfterResult, "", "keyed", once, once, redacted},
	}
}

// The gateway dies while a custom tool is called, and while and after a PostToolUse hook decides on its result. A call
// that must not be repeated is not, and the model is told; one with a key is repeated with it. The model never sees
// what the hook has not seen, the decision that is stored is the only one, and the run ends once. // P01 P02 H14 N04
func TestCustomToolsAndTheirHooksSurviveCrashes(t *testing.T) {
	t.Parallel()
	for _, c := range sampled(t, customToolCases(), func(c customToolCase) string { return c.class + only(string(c.point)) }) {
		t.Run(c.name(), func(t *testing.T) {
			t.Parallel()
			tool := newCustomTool(t, c.held)
			w := newWorld(t, options{script: func(transcript []message) turn {
				if last := transcript[len(transcript)-1]; last.Role == "tool" {
					return turn{text: []string{"Told: ", last.Content}}
				}
				return turn{calls: []call{{"c1", "pay", `{"n":7}`}}}
			}})
			p := w.serve()
			w.created("/api/tools", fmt.Sprintf(`{"name":"pay","description":"Pays.","config":{"endpoint":%q,"class":%q}}`, tool.URL+"/pay", c.class))
			agentID := w.created("/api/agents", fmt.Sprintf(`{"name":"a","model":"m","hooks":[{"event":"PostToolUse","type":"http","config":{"url":%q}}]}`, tool.URL+"/hook"))
			w.created("/api/agents/"+agentID+"/tools", `{"tool_type":"custom","tool_name":"pay"}`)
			session := w.created("/api/agents/"+agentID+"/sessions", "{}")
			p.kill()

			at := ""
			if c.held == "" {
				at = nth(c.point, 1)
			}
			p = w.start(at)
			var client sync.WaitGroup
			t.Cleanup(client.Wait)
			client.Go(func() { w.talk(agentID, session, "one", "reject") })
			if c.held != "" {
				<-tool.held
				p.kill()
			}
			p.wantKilled(t, "which is at "+c.name())
			w.start("")
			client.Wait()

			said := w.said(session)
			if !strings.Contains(said, "|assistant Told: ") || strings.Count(said, c.told) != 2 || strings.Contains(said, rawResult) {
				t.Errorf("the session has said %s, want twice %q", said, c.told)
			}
			for _, transcript := range w.provider.transcripts() {
				if strings.Contains(fmt.Sprint(transcript), rawResult) {
					t.Errorf("the model has seen %v", transcript)
				}
			}
			run := w.onlyRun()
			if n := w.ends(run); n != 1 {
				t.Errorf("%d ends", n)
			}
			story, _ := w.load(run)
			decided := 0
			for _, f := range story.Facts {
				if f.Body.Kind() == loop.KindHookRan {
					decided++
				}
			}
			if want := map[bool]int{true: 1}[c.told == "redacted"]; decided != want {
				t.Errorf("%d decisions of the hook are stored, want %d", decided, want)
			}
			tool.mu.Lock()
			defer tool.mu.Unlock()
			within := func(n int, bounds [2]int) bool { return bounds[0] <= n && n <= bounds[1] }
			if !within(len(tool.keys), c.calls) || !within(tool.asked, c.asked) {
				t.Errorf("the tool was called %d times and the hook %d times, want %d and %d", len(tool.keys), tool.asked, c.calls, c.asked)
			}
			for _, key := range tool.keys {
				if key != tool.keys[0] || key == "" {
					t.Errorf("the keys of the calls are %q", tool.keys)
				}
			}
		})
	}
}
