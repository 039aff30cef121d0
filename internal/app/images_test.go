package app_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// A PNG that the client calls a JPEG is sent as a PNG, in a message and in the output of a
// function, unless the client writes the provider's own dialect: providers refuse another
// type. // M03
func TestAnImageOfAnotherTypeThanItsName(t *testing.T) {
	noLeaks(t)
	const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	const part = `{"type":"input_image","image_url":"data:image/jpeg;base64,` + png + `"}`
	const chat = `"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,` + png + `"}}]}]`
	const message = `"input":[{"role":"user","content":[{"type":"input_text","text":"a"},` + part + `]}]`
	const output = `"tools":[` + clock + `],"input":[{"role":"user","content":"a"},{"type":"function_call","call_id":"call_12345","name":"clock","arguments":"{}"},` +
		`{"type":"function_call_output","call_id":"call_12345","output":[` + part + `]}]`
	for kind := range kinds {
		for path, bodies := range map[string][]string{"/v1/chat/completions": {chat}, "/v1/responses": {message, output}} {
			if kind == "openai" && path != "/v1/responses" || kind == "openai-responses" && path == "/v1/responses" {
				continue
			}
			for _, body := range bodies {
				up := strictUpstream(t, "text Done.")
				yaml, name := ofKind(site{upstream: strings.TrimSuffix(up.URL, "/v1")}.yaml(), kind)
				g := MustRun(t, yaml)
				a := g.send("POST", path, strings.NewReader(`{"model":"`+name+`",`+body+`}`))
				if a.status != 200 || len(up.Requests()) != 1 {
					t.Fatalf("%s %s: %d %s", kind, path, a.status, a.body)
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
	noLeaks(t)
	for _, body := range []string{"<html>hello</html>", "{oops}", "data: {oops\n\n"} {
		asked := 0
		up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ received) {
			asked++
			_, _ = w.Write([]byte(body))
		})
		g := MustRun(t, site{upstream: up.URL}.yaml())
		a := g.send("POST", "/v1/responses", strings.NewReader(`{"model":"m","input":"go"}`))
		if asked != 1 || !strings.Contains(string(a.body), "not") {
			t.Errorf("%q: asked %d times: %d %s", body, asked, a.status, a.body)
		}
	}
}

// Nor is one that is JSON and not an answer of the dialect. One that is an error is asked for again
// as before. // M04
func TestAnAnswerOfAnotherDialectIsAskedForOnce(t *testing.T) {
	noLeaks(t)
	for kind := range kinds {
		for body, want := range map[string]int{`{"ok":true}`: 1, `[{"a":1}]`: 1, `{"error":{"type":"overloaded_error"}}`: 4} {
			t.Run(kind+" "+body, func(t *testing.T) {
				t.Parallel() // what fails is tried four times, with waits between
				var asked atomic.Int32
				up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ received) {
					asked.Add(1)
					_, _ = w.Write([]byte(body))
				})
				yaml, name := ofKind(site{upstream: up.URL}.yaml(), kind)
				g := MustRun(t, yaml)
				a := g.send("POST", "/v1/responses", strings.NewReader(`{"model":"`+name+`","input":"go"}`))
				if int(asked.Load()) != want || a.status == 200 {
					t.Errorf("asked %d times, want %d: %d %s", asked.Load(), want, a.status, a.body)
				}
			})
		}
	}
}
