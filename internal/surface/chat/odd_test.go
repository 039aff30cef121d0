package chat_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// What is odd in a request is no reason for a loop to fail, and reaches the model
// as it was sent.
func TestALoopTakesWhatIsOddInARequest(t *testing.T) {
	NoLeaks(t)
	for name, tt := range map[string]struct{ body, model string }{
		"bytes that are no text":    {"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"a\xff\xfeb\"}]}", "a\xff\xfeb"},
		"half a surrogate":          {`{"model":"m","messages":[{"role":"user","content":"\ud800"}]}`, `\ud800`},
		"a number beyond all":       {`{"model":"m","temperature":1e400,"messages":[{"role":"user","content":"x","x":-0.0}]}`, `"temperature":1e400`},
		"members that nobody knows": {`{"model":"m","x_new":{"a":[1e400,"\/"]},"messages":[{"role":"user","content":"x","x":{"\u0061":1}}]}`, `{"a":[1e400,"\/"]}`},
		"repeated members":          {`{"model":"g-1","messages":7,"model":"m","messages":[{"role":"user","role":"user","content":"x"}]}`, `"model":"m"`},
		"an unknown role":           {`{"model":"m","messages":[{"role":"critic","content":"x"}]}`, "critic"},
		"content of an unknown kind": {`{"model":"m","messages":[{"role":"user","content":[{"type":"hologram","hologram":{"z":1}}]}]}`,
			`{"type":"hologram","hologram":{"z":1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			tools := NewMCP(t, map[string]Handler{"echo": Echo})
			up := NewUpstream(t, Script(Asks(Use("echo", `{}`)), Says("Done.")))
			g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("s", tools.URL)}}.Yaml())
			if text, _ := g.Post(tt.body).Completion(t); text != "Done." {
				t.Errorf("%q", text)
			}
			for i, r := range up.Requests() {
				if !strings.Contains(string(r.Body), tt.model) {
					t.Errorf("round %d lacks %q: %q", i, tt.model, r.Body)
				}
			}
		})
	}
}

// An org has so many runs at a time; one more is told to come back.
func TestOneRunTooManyIs429(t *testing.T) {
	NoLeaks(t)
	reached, release := make(chan struct{}), make(chan struct{})
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		if got.Number == 0 {
			close(reached)
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		Says("hi").Write(w)
	})
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	g := MustRun(t, Site{Upstream: up.URL, Runtime: "concurrency: 1", Servers: []string{Server("s", tools.URL)}}.Yaml())
	first := make(chan int, 1)
	go func() {
		resp, err := g.Client.Do(g.Request(context.Background(), "POST", "/v1/chat/completions", strings.NewReader(Question)))
		if err != nil {
			first <- 0
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		first <- resp.StatusCode
	}()
	Wait(t, reached, "the first run")
	got := g.Post(Question)
	if got.Status != 429 || got.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, header %v: %s", got.Status, got.Header, got.Body)
	}
	got.Fault(t)
	if relayed := g.Post(Question, "turnpike-mcp-disabled", "1"); relayed.Status != 200 { // a relay holds no slot
		t.Errorf("status %d: %s", relayed.Status, relayed.Body)
	}
	close(release)
	if status := Wait(t, first, "the first answer"); status != 200 {
		t.Errorf("status %d", status)
	}
	g.Post(Question).Completion(t) // the slot is free again
}
