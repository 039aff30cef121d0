package app_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// What is odd in a request is no reason for a loop to fail, and reaches the model
// as it was sent.
func TestALoopTakesWhatIsOddInARequest(t *testing.T) {
	noLeaks(t)
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
			tools := newMCP(t, map[string]handler{"echo": echo})
			up := newUpstream(t, script(asks(call{"echo", `{}`}), says("Done.")))
			g := MustRun(t, site{upstream: up.URL, servers: []string{server("s", tools.URL)}}.yaml())
			if text, _ := g.post(tt.body).completion(t); text != "Done." {
				t.Errorf("%q", text)
			}
			for i, r := range up.requests() {
				if !strings.Contains(string(r.body), tt.model) {
					t.Errorf("round %d lacks %q: %q", i, tt.model, r.body)
				}
			}
		})
	}
}

// An org has so many runs at a time; one more is told to come back.
func TestOneRunTooManyIs429(t *testing.T) {
	noLeaks(t)
	reached, release := make(chan struct{}), make(chan struct{})
	up := newUpstream(t, func(w http.ResponseWriter, r *http.Request, got received) {
		if got.number == 0 {
			close(reached)
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		says("hi").write(w)
	})
	tools := newMCP(t, map[string]handler{"echo": echo})
	g := MustRun(t, site{upstream: up.URL, runtime: "concurrency: 1", servers: []string{server("s", tools.URL)}}.yaml())
	first := make(chan int, 1)
	go func() {
		resp, err := g.client.Do(g.request(context.Background(), "POST", "/v1/chat/completions", strings.NewReader(question)))
		if err != nil {
			first <- 0
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		first <- resp.StatusCode
	}()
	wait(t, reached, "the first run")
	got := g.post(question)
	if got.status != 429 || got.header.Get("Retry-After") == "" {
		t.Errorf("status %d, header %v: %s", got.status, got.header, got.body)
	}
	got.fault(t)
	if relayed := g.post(question, "turnpike-mcp-disabled", "1"); relayed.status != 200 { // a relay holds no slot
		t.Errorf("status %d: %s", relayed.status, relayed.body)
	}
	close(release)
	if status := wait(t, first, "the first answer"); status != 200 {
		t.Errorf("status %d", status)
	}
	g.post(question).completion(t) // the slot is free again
}
