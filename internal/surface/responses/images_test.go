package responses_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// A PNG that the client calls a JPEG is sent as a PNG, in a message and in the output of a
// function, unless the client writes the provider's own dialect: providers refuse another
// type. // M03
func TestAnImageOfAnotherTypeThanItsName(t *testing.T) {
	NoLeaks(t)
	const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	const part = `{"type":"input_image","image_url":"data:image/jpeg;base64,` + png + `"}`
	const chat = `"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,` + png + `"}}]}]`
	const message = `"input":[{"role":"user","content":[{"type":"input_text","text":"a"},` + part + `]}]`
	const output = `"tools":[` + clock + `],"input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"call_12345","name":"clock","arguments":"{}"},` +
		`{"type":"function_call_output","call_id":"call_12345","output":[` + part + `]}]`
	for kind := range Kinds {
		for path, bodies := range map[string][]string{"/v1/chat/completions": {chat}, "/v1/responses": {message, output}} {
			if kind == "openai" && path != "/v1/responses" || kind == "openai-responses" && path == "/v1/responses" {
				continue
			}
			for _, body := range bodies {
				up := StrictUpstream(t, "text Done.")
				yaml, name := OfKind(Site{Upstream: strings.TrimSuffix(up.URL, "/v1")}.Yaml(), kind)
				g := MustRun(t, yaml)
				a := g.Send("POST", path, strings.NewReader(`{"model":"`+name+`",`+body+`}`))
				if a.Status != 200 || len(up.Requests()) != 1 {
					t.Fatalf("%s %s: %d %s", kind, path, a.Status, a.Body)
				}
				if sent := string(up.Requests()[0].Body); strings.Contains(sent, png) && strings.Contains(sent, "jpeg") || body != output && !strings.Contains(sent, png) {
					t.Errorf("%s, %.60s: %s", kind, body, sent)
				}
			}
		}
	}
}

// An answer with status 200 that cannot be read was paid for: it is not asked for again. // M04
func TestAnAnswerThatCannotBeReadIsAskedForOnce(t *testing.T) {
	NoLeaks(t)
	for _, body := range []string{"<html>hello</html>", "{oops}", "data: {oops\n\n"} {
		asked := 0
		up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
			asked++
			_, _ = w.Write([]byte(body))
		})
		g := MustRun(t, Site{Upstream: up.URL}.Yaml())
		a := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"go"}`))
		if asked != 1 || !strings.Contains(string(a.Body), "not") {
			t.Errorf("%q: asked %d times: %d %s", body, asked, a.Status, a.Body)
		}
	}
}

// Nor is one that is JSON and not an answer of the dialect. One that is an error is asked for again
// as before. // M04
func TestAnAnswerOfAnotherDialectIsAskedForOnce(t *testing.T) {
	NoLeaks(t)
	for kind := range Kinds {
		for body, want := range map[string]int{`{"ok":true}`: 1, `[{"a":1}]`: 1, `{"error":{"type":"overloaded_error"}}`: 4} {
			t.Run(kind+" "+body, func(t *testing.T) {
				t.Parallel() // what fails is tried four times, with waits between
				var asked atomic.Int32
				up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) {
					asked.Add(1)
					_, _ = w.Write([]byte(body))
				})
				yaml, name := OfKind(Site{Upstream: up.URL}.Yaml(), kind)
				g := MustRun(t, yaml)
				a := g.Send("POST", "/v1/responses", strings.NewReader(`{"model":"`+name+`","input":"go"}`))
				if int(asked.Load()) != want || a.Status == 200 {
					t.Errorf("asked %d times, want %d: %d %s", asked.Load(), want, a.Status, a.Body)
				}
			})
		}
	}
}
