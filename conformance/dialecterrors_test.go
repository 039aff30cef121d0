package conformance

import (
	"fmt"
	"strings"
	"testing"
)

// dialectError is how a provider fails and what the Node client of OpenAI raises.
type dialectError struct {
	fail  string // what follows "fail" in the story
	class string
	shown int    // the status that the client sees; 0 = the provider's
	code  string // the gateway's; "" = the provider's
	retry string // the Retry-After header
}

var dialectErrors = []dialectError{
	{fail: "400 the request is wrong", class: "BadRequestError"},
	{fail: "403 this key may not use the model", class: "PermissionDeniedError"},
	{fail: "404 there is no such model", class: "NotFoundError"},
	{fail: "409 another request changes it", class: "ConflictError"},
	{fail: "413 the request is too large", class: "APIError"},
	{fail: "422 the request makes no sense", class: "UnprocessableEntityError"},
	{fail: "429 retry-after 7 too many tokens", class: "RateLimitError", retry: "7"},
	{fail: "500 something broke", class: "InternalServerError"},
	{fail: "503 retry-after 3 come back later", class: "InternalServerError", retry: "3"},
	{fail: "529 the provider is overloaded", class: "InternalServerError"},
}

// anthropicClasses are those that Anthropic's client has for a status and OpenAI's
// does not.
var anthropicClasses = map[string]string{"413": "ContentTooLargeError", "503": "ServiceUnavailableError", "529": "OverloadedError"}

// A refused key is the client's without a gateway, and the gateway's own behind one.
// Only a relay that changes nothing passes the provider's answer on.
var (
	refusedKey    = dialectError{fail: "401 the key is wrong", class: "AuthenticationError"}
	refusedOwnKey = dialectError{fail: refusedKey.fail, class: "InternalServerError", shown: 502, code: "upstream_credential_refused"}
)

// refusedImage is the place of a refused image in the client's request, by API.
// Responses refuses the image itself, and the place that it names is in the
// translated request: the client is not told.
var refusedImage = map[string]string{
	"chat":      "messages[1].content[1].image_url.url",
	"messages":  "messages[1].content[1].image_url",
	"responses": "",
}

// testDialectErrors: the official client of each API raises the errors of its strict
// fake. With the loop off, providers of every dialect raise the same errors in
// OpenAI's client, and it repeats requests as it does for OpenAI.
func testDialectErrors(t *testing.T, s *site) { // A14
	f := startFakes(t)
	gateway := s.startGateway(t, f.URL, []object{}).url
	client := nodeClient{node: s.node, script: "conversation.mjs"}
	talk := func(t *testing.T, d dialect, all []conversation, noRetries bool) outcome {
		return answer(t, client, ask{API: "chat", BaseURL: gateway + "/v1", Key: plainKey, Model: d.model, Conversations: all, NoRetries: noRetries})
	}
	for _, d := range dialects {
		t.Run(d.api+", direct", func(t *testing.T) {
			failing := append(dialectErrors, refusedKey)
			all := failures(failing)
			f.play(t, all)
			got := answer(t, client, ask{API: d.api, BaseURL: f.URL + d.base, Key: upKey, Model: d.model, Conversations: all, NoRetries: true})
			for i, c := range all {
				t.Run(c.name, func(t *testing.T) {
					want := failing[i/2]
					if class := anthropicClasses[want.fail[:3]]; class != "" && d.api == "messages" {
						want.class = class
					}
					want.check(t, got.Each[i].Error)
				})
			}
		})
		t.Run(d.api, func(t *testing.T) {
			failing := append(dialectErrors, refusedOwnKey)
			if d.api == "chat" {
				failing = append(dialectErrors, refusedKey)
			}
			all := failures(failing)
			f.play(t, all)
			got := talk(t, d, all, true)
			for i, c := range all {
				t.Run(c.name, func(t *testing.T) {
					failing[i/2].check(t, got.Each[i].Error)
					if got.Each[i].Error.Code == "" {
						t.Error("the error has no code")
					}
				})
			}
		})
		t.Run(d.api+", a failure in mid-stream", func(t *testing.T) {
			const broken = "text It was\nfail 529 the provider is overloaded"
			all := asked([]conversation{{name: "an error", Stream: true, story: broken}, {name: "the end of the connection", Stream: true, story: "text It was\ncut"}})
			if d.api == "chat" { // a relay that changes nothing ends the connection too, which is no APIError
				all = all[:1]
			}
			f.play(t, all)
			for i, c := range talk(t, d, all, true).Each {
				if e := c.Error; e == nil || e.Class != "APIError" || e.Status != 0 {
					t.Errorf("%s: the client raised %+v, want an APIError", all[i].name, e)
				}
			}
		})
		t.Run(d.api+", a value that the provider does not take", func(t *testing.T) {
			all := bothWays(conversation{name: "an image of another type", Images: []object{{"media_type": "image/bmp", "data": "Qk0="}}, story: "text Nice."})
			f.play(t, all)
			for _, c := range talk(t, d, all, true).Each {
				if c.Error == nil {
					t.Fatal("no error was raised")
				}
				wantEqual(t, "class", "BadRequestError", c.Error.Class)
				wantEqual(t, "param", refusedImage[d.api], c.Error.Param)
			}
		})
		if d.api != "chat" {
			t.Run(d.api+", a member that the gateway does not translate", func(t *testing.T) {
				chat := nodeClient{node: s.node, script: "chat.mjs"}
				request := object{"model": d.model, "n": 2, "messages": []object{{"role": "user", "content": "Hello?"}}}
				e := run(t, chat, ask{BaseURL: gateway + "/v1", Key: plainKey, Request: request}).Error
				if e == nil {
					t.Fatal("no error was raised")
				}
				wantEqual(t, "class", "BadRequestError", e.Class)
				wantEqual(t, "code", "unsupported_value", e.Code)
				wantEqual(t, "param", "n", e.Param)
			})
		}
		t.Run(d.api+", the client repeats", func(t *testing.T) {
			var all []conversation
			for _, first := range []string{"529 overloaded", "500 broken", "429 retry-after 1 wait"} {
				all = append(all, conversation{name: first, story: "fail " + first + "\n\ntext Better now.\nusage 3 2"})
			}
			all = asked(all)
			ups := f.play(t, all)
			for i, got := range talk(t, d, all, false).Each {
				if got.Error != nil || len(got.Turns) != 1 || got.Turns[0].Text != "Better now." {
					t.Errorf("%s: the client got %+v and raised %+v", all[i].name, got.Turns, got.Error)
				}
				wantEqual(t, all[i].name+": requests at the provider", 2, len(ups[i].Requests()))
			}
		})
	}
}

// failures returns a conversation that fails in each way, as JSON and streamed.
func failures(failing []dialectError) []conversation {
	var all []conversation
	for _, e := range failing {
		all = append(all, bothWays(conversation{name: e.fail, story: "fail " + e.fail})...)
	}
	return all
}

func (e dialectError) check(t *testing.T, got *clientError) {
	t.Helper()
	if got == nil {
		t.Fatal("no error was raised")
	}
	var status int
	_, words, _ := strings.Cut(e.fail, " ")
	if _, err := fmt.Sscanf(e.fail, "%d", &status); err != nil {
		t.Fatal(err)
	}
	if e.shown != 0 {
		status, words = e.shown, ""
	}
	wantEqual(t, "class", e.class, got.Class)
	wantEqual(t, "is an APIError", true, got.IsAPIError)
	wantEqual(t, "status", status, got.Status)
	wantEqual(t, "Retry-After", e.retry, got.RetryAfter)
	if words = strings.TrimPrefix(words, "retry-after "+e.retry+" "); !strings.Contains(got.Message, words) {
		t.Errorf("message = %q, want the provider's %q", got.Message, words)
	}
	if e.code != "" {
		wantEqual(t, "code", e.code, got.Code)
	}
}
