package chat

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
)

// foreignModel is a model of a provider that speaks another dialect, in which some
// members cannot be expressed.
type foreignModel struct {
	model.Model
	drops []string
}

// Dropped implements model.Translator.
func (m foreignModel) Dropped(req *model.Request) []string {
	var out []string
	for _, name := range m.drops {
		for _, p := range req.Params {
			if p.Name == name {
				out = append(out, name)
			}
		}
		if name == "tool_choice" && req.ToolChoice.Mode == "required" && len(req.Tools) > 0 {
			out = append(out, name)
		}
	}
	return out
}

// place is a handler with providers, and an org.
type place struct {
	providers []route.Provider
	loopOff   bool
	runtime   org.Runtime
}

func (p place) serve(r *teller, body string) *httptest.ResponseRecorder {
	h := New(surface.Options{
		MaxRoundsCap: func() int { return 50 }, Runner: r, Heartbeats: sse.NewHeartbeats(0), Log: slog.New(slog.DiscardHandler), Router: route.New(p.providers),
	})
	caller := caller.Caller{
		Org: &org.Org{ID: "o", MCPOutbound: !p.loopOff, Runtime: p.runtime}, Principal: org.Principal{ID: "p", Role: org.Member},
		Servers: make([]catalog.Server, 1), RequestID: "req_7",
	}
	w := httptest.NewRecorder()
	answer(h, w, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body)), caller)
	return w
}

func provider(name string, m model.Model) route.Provider {
	return route.Provider{Name: name, Models: []string{"m"}, Model: m}
}

// cutWithCall are the events of an answer that was cut after a call.
func cutWithCall() []event.Event {
	return []event.Event{
		event.Started{RunID: "req_7", Model: "m", At: time.Unix(1700000000, 0)}, event.RoundStarted{Attempt: 1},
		event.TextDelta{Text: "Hello"}, event.RoundDone{Stop: model.StopLength},
		event.Finished{Reason: event.OutputCut, Calls: []event.ClientCall{{ID: "c", Name: "f", Arguments: "{}"}}, Rounds: 1},
	}
}

// Without the loop, a request for a provider of another dialect is translated. // A14
func TestWithTheLoopOffAProviderOfAnotherDialectIsTranslated(t *testing.T) {
	for name, stream := range map[string]bool{"JSON": false, "a stream": true} {
		t.Run(name, func(t *testing.T) {
			r := &teller{events: cutWithCall()}
			body := ask
			if stream {
				body = askStream
			}
			p := place{
				providers: []route.Provider{provider("claude", foreignModel{}), provider("other", chatModel{})}, loopOff: true,
				runtime: org.Runtime{StreamMode: org.Disabled, Durable: "always", Concurrency: 1}, // of the loop only
			}
			w := p.serve(r, body)
			req := r.got
			if req.Relay == nil || req.Relay.Raw != nil || req.ID != "req_7" || req.Key != nil || len(req.Targets) != 1 ||
				req.Policy.Slots != 0 || req.Policy.Limits.ActiveMS != 0 || req.Servers != nil || len(req.Items) != 1 || (req.Policy.Live != nil) != stream {
				t.Errorf("request %+v", req)
			}
			if w.Code != 200 || w.Header().Get("Turnpike-Run-Id") != "" {
				t.Errorf("status %d, header %v", w.Code, w.Header())
			}
			if stream {
				all := frames(t, w)
				last := strings.Join(all[len(all)-4:], "\n")
				if !strings.Contains(last, `"tool_calls":[{"index":0,"id":"c"`) || !strings.Contains(last, `"finish_reason":"length"`) ||
					!strings.Contains(last, `"usage":`) || all[len(all)-1] != "[DONE]" {
					t.Errorf("the stream ends with\n%s", last)
				}
			} else if got := w.Body.String(); !strings.Contains(got, `"content":"Hello"`) || !strings.Contains(got, `"tool_calls":[{"id":"c"`) || !strings.Contains(got, `"finish_reason":"length"`) {
				t.Errorf("the answer is %s", got)
			}
		})
	}
}

// A request of the provider's own dialect goes on as bytes, without being decoded.
func TestWithTheLoopOffAProviderOfTheDialectIsRelayed(t *testing.T) {
	r := &teller{events: []event.Event{event.Started{}, event.Finished{Reason: event.Complete}}}
	place{providers: []route.Provider{provider("up", chatModel{})}, loopOff: true}.serve(r, `{"model":"m","n":2,"messages":7}`)
	if req := r.got; req.Relay == nil || req.Relay.Raw == nil || req.Relay.Raw.Dialect != model.DialectChat || string(req.Relay.Raw.Body) != `{"model":"m","n":2,"messages":7}` {
		t.Errorf("request %+v", req)
	}
}

// What cannot be translated is refused before a run begins, with its place.
func TestWhatCannotBeTranslatedIsRefused(t *testing.T) {
	const user = `{"role":"user","content":"go"}`
	for _, tt := range []struct{ name, members, messages, param string }{
		{"several answers", `"n":2,`, user, "n"},
		{"a content part of an unknown kind", "", `{"role":"user","content":[{"type":"text","text":"x"},{"type":"video_url"}]}`, "messages[0].content[1]"},
		{"a role of the old form", "", user + `,{"role":"function","name":"f","content":"1"}`, "messages[1]"},
		{"a call of the old form", "", user + `,{"role":"assistant","function_call":{"name":"f","arguments":"{}"}}`, "messages[1]"},
		{"a spoken answer", "", user + `,{"role":"assistant","audio":{"transcript":"a"}}`, "messages[1]"},
		{"a call of a custom tool", "", user + `,{"role":"assistant","tool_calls":[{"id":"c","type":"custom","custom":{"name":"f"}}]}`, "messages[1]"},
		{"a custom tool", `"tools":[{"type":"custom","custom":{"name":"f"}}],`, user, "tools[0]"},
		{"a choice of an unknown word", `"tool_choice":"perhaps",`, user, "tool_choice"},
		{"a choice of no tool", `"tool_choice":{"type":"function"},`, user, "tool_choice"},
		{"a choice that is a number", `"tool_choice":7,`, user, "tool_choice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			body := `{"model":"m",` + tt.members + `"messages":[` + tt.messages + `]}`
			for _, off := range []bool{true, false} {
				r := &teller{}
				w := place{providers: []route.Provider{provider("claude", foreignModel{})}, loopOff: off}.serve(r, body)
				if got := w.Body.String(); w.Code != 400 || !strings.Contains(got, `"param":"`+tt.param+`"`) || !strings.Contains(got, "the provider claude") ||
					!strings.Contains(got, `"unsupported_value"`) || strings.Contains(got, "mcp-disabled") || r.got != nil {
					t.Errorf("loop off %t: status %d: %s", off, w.Code, got)
				}
			}
			if tt.param == "n" {
				return
			}
			r := &teller{}
			place{providers: []route.Provider{provider("claude", foreignModel{}), provider("up", chatModel{})}}.serve(r, body)
			if r.got == nil || len(r.got.Targets) != 1 || r.got.Targets[0].Provider != "up" {
				t.Errorf("a target that can take it is not chosen: %+v", r.got)
			}
		})
	}
}

// What a provider leaves out is named before the answer begins, or refused. // P22
func TestWhatAProviderLeavesOutIsNamedOrRefused(t *testing.T) {
	const body = `{"model":"m","seed":1,"logprobs":true,"top_logprobs":null,"made_up":1,"tool_choice":"required","messages":[{"role":"user","content":"go"}]}`
	claude, other := provider("claude", foreignModel{drops: []string{"made_up", "seed"}}), provider("other", foreignModel{drops: []string{"seed", "user"}})
	choosy := provider("choosy", foreignModel{drops: []string{"tool_choice"}})
	for _, tt := range []struct {
		name      string
		providers []route.Provider
		off       bool
		named     string
		remedy    string
	}{
		{"the loop, of the dialect", []route.Provider{provider("up", chatModel{})}, false, "logprobs", "the agent loop cannot carry logprobs"},
		{"the loop, every target", []route.Provider{claude, other}, false, "logprobs,made_up,seed", "the provider claude cannot take logprobs"},
		{"the loop, a fallback", []route.Provider{provider("up", chatModel{}), other}, false, "logprobs,seed", "the agent loop"},
		{"the loop, with the gateway's tools", []route.Provider{choosy}, false, "logprobs,tool_choice", "choosy"},
		{"a relay, without tools", []route.Provider{choosy}, true, "logprobs", "choosy"},
		{"a relay, its target only", []route.Provider{other, claude}, true, "logprobs,seed", "the provider other cannot take logprobs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, form := range []string{body, strings.Replace(body, "{", `{"stream":true,`, 1)} {
				w := place{providers: tt.providers, loopOff: tt.off}.serve(&teller{events: cutWithCall()}, form)
				if w.Code != 200 || w.Header().Get("Turnpike-Dropped-Params") != tt.named {
					t.Errorf("status %d, dropped %q, want %q", w.Code, w.Header().Get("Turnpike-Dropped-Params"), tt.named)
				}
			}
			r := &teller{}
			w := place{providers: tt.providers, loopOff: tt.off, runtime: org.Runtime{DroppedParams: "refuse"}}.serve(r, body)
			if got := w.Body.String(); w.Code != 400 || !strings.Contains(got, `"param":"logprobs"`) || !strings.Contains(got, tt.remedy) || r.got != nil {
				t.Errorf("status %d: %s", w.Code, got)
			}
		})
	}
	refuses := place{providers: []route.Provider{claude}, loopOff: true, runtime: org.Runtime{DroppedParams: "refuse"}}
	w := refuses.serve(&teller{}, `{"model":"m","seed":1,"messages":[{"role":"user","content":"go"}]}`)
	if got := w.Body.String(); w.Code != 400 || !strings.Contains(got, `"param":"seed"`) || !strings.Contains(got, "the provider claude cannot take seed") {
		t.Errorf("status %d: %s", w.Code, got)
	}
}

// A provider's error of another dialect is told in this one, with its status, its
// message and what it says of a retry.
func TestAnErrorOfAnotherDialectIsRewritten(t *testing.T) {
	fails := func(status int, code, message string) *model.Error {
		return &model.Error{
			Status: status, Dialect: model.DialectAnthropic, Code: code, Message: message, Body: []byte(`{"type":"error","error":{"type":"t"}}`),
			Header: http.Header{"Retry-After": {"7"}, "Request-Id": {"req_theirs"}, "Content-Type": {"application/problem+json"}},
		}
	}
	for _, tt := range []struct {
		name   string
		reason event.Reason
		up     *model.Error
		status int
		kind   string
		code   string
	}{
		{"a bad request", event.ModelError, fails(400, "invalid_request_error", "no"), 400, "invalid_request_error", "invalid_request_error"},
		{"no permission", event.ModelError, fails(403, "permission_error", "no"), 403, "permission_error", "permission_error"},
		{"no such model", event.ModelError, fails(404, "not_found_error", "no"), 404, "invalid_request_error", "not_found_error"},
		{"too large", event.ModelError, fails(413, "request_too_large", "no"), 413, "invalid_request_error", "request_too_large"},
		{"too many", event.ModelError, fails(429, "rate_limit_error", "no"), 429, "rate_limit_error", "rate_limit_error"},
		{"overloaded", event.ModelError, fails(529, "overloaded_error", "no"), 529, "upstream_error", "overloaded_error"},
		{"without a name", event.ModelError, fails(500, "", "no"), 500, "upstream_error", "model_error"},
		{"too long", event.TooLong, fails(400, "invalid_request_error", "no"), 400, "invalid_request_error", "context_length_exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code := map[event.Reason]string{event.ModelError: "model_error", event.TooLong: "context_length_exceeded"}[tt.reason]
			end := event.Finished{Reason: tt.reason, Failure: &event.Failure{Code: code, Message: "ours", Upstream: tt.up}}
			want := `{"error":{"message":"no","type":"` + tt.kind + `","param":null,"code":"` + tt.code + `","retry_after_secs":7}}`
			p := place{providers: []route.Provider{provider("claude", foreignModel{})}, loopOff: true}
			for _, body := range []string{ask, askStream} {
				w := p.serve(&teller{events: []event.Event{begun(), event.RoundStarted{}, end}}, body)
				if w.Code != tt.status || w.Body.String() != want+"\n" {
					t.Errorf("status %d: %s, want %s", w.Code, w.Body, want)
				}
				h := w.Header()
				if h.Get("Retry-After") != "7" || h.Get("Request-Id") != "req_theirs" || h.Get("Content-Type") != "application/json" || h.Get("X-Should-Retry") != "" {
					t.Errorf("header %v", h)
				}
			}
			w := p.serve(&teller{events: []event.Event{begun(), event.RoundStarted{}, event.TextDelta{Text: "x"}, end}}, askStream)
			if all := frames(t, w); all[len(all)-2] != want || all[len(all)-1] != "[DONE]" {
				t.Errorf("the stream ends with %q, want %s", all[len(all)-2:], want)
			}
		})
	}
	within := fails(200, "overloaded_error", "Overloaded")
	within.Header = nil
	end := event.Finished{Reason: event.ModelError, Failure: &event.Failure{Code: "model_error", Message: "ours", Upstream: within}}
	w := place{providers: []route.Provider{provider("claude", foreignModel{})}, loopOff: true}.
		serve(&teller{events: []event.Event{begun(), event.RoundStarted{}, event.TextDelta{Text: "x"}, end}}, askStream)
	want := `{"error":{"message":"Overloaded","type":"upstream_error","param":null,"code":"overloaded_error"}}`
	if all := frames(t, w); all[len(all)-2] != want {
		t.Errorf("an error inside an answer: %s, want %s", all[len(all)-2], want)
	}
}

// C25
func TestAToolChoiceThatNoToolSatisfiesIsABadRequest(t *testing.T) {
	end := event.Finished{Reason: event.Invalid, Failure: &event.Failure{Code: "tool_choice_unavailable", Message: "none"}}
	w := serve(&teller{events: []event.Event{begun(), end}}, org.Live, ask, nil)
	want := `{"error":{"message":"none","type":"invalid_request_error","param":"tool_choice","code":"tool_choice_unavailable"}}` + "\n"
	if diff := cmp.Diff(want, w.Body.String()); diff != "" || w.Code != 400 {
		t.Errorf("status %d: %s", w.Code, diff)
	}
}

// The calls of a translated relay leave as they come, in pieces that clients join by
// their index: also one that was cut off, as a provider of the dialect does.
func TestCallsOfATranslatedRelayAreStreamed(t *testing.T) {
	r := &teller{events: []event.Event{
		begun(), event.RoundStarted{}, event.TextDelta{Text: "Hm"},
		event.CallDelta{Item: 1, CallID: "c1", Name: "f", Arguments: `{"a":`}, event.CallDelta{Item: 1, Arguments: "1}"},
		event.CallDelta{Item: 2, CallID: "c2", Name: "g"}, event.CallDelta{Item: 2, Arguments: `{"b`},
		event.RoundDone{Stop: model.StopLength},
		event.Finished{Reason: event.OutputCut, Calls: []event.ClientCall{{ID: "c1", Name: "f", Arguments: `{"a":1}`}}},
	}}
	w := place{providers: []route.Provider{provider("claude", foreignModel{})}, loopOff: true}.serve(r, strings.Replace(ask, "{", `{"stream":true,`, 1))
	var deltas []string
	for _, f := range frames(t, w) {
		if _, rest, ok := strings.Cut(f, `"delta":`); ok {
			d, _, _ := strings.Cut(rest, `,"logprobs"`)
			deltas = append(deltas, d)
		}
	}
	want := []string{
		`{"role":"assistant","content":""}`, `{"content":"Hm"}`,
		`{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]}`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\":"}}]}`,
		`{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}`,
		`{"tool_calls":[{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":""}}]}`,
		`{"tool_calls":[{"index":1,"function":{"arguments":"{\"b"}}]}`,
		`{}`,
	}
	if diff := cmp.Diff(want, deltas); diff != "" {
		t.Error(diff)
	}
	if !slices.Contains(r.got.Policy.Live, model.CallDelta) {
		t.Errorf("the run is told that %v reach the client", r.got.Policy.Live)
	}
}

// A client decides how many names an answer lists, and how long they are.
func TestTheListOfDroppedMembersIsLimited(t *testing.T) {
	const maxListed = 2 << 10 // bytes
	body := &strings.Builder{}
	for i := range 50_000 {
		fmt.Fprintf(body, `,"member_%05d":1`, i)
	}
	r := &teller{events: cutWithCall()}
	p := place{providers: []route.Provider{provider("claude", allDropping{})}, loopOff: true}
	ask := `{"model":"m","messages":[{"role":"user","content":"x"}]` + body.String() + `}`
	w := p.serve(r, ask)
	if got := w.Header().Get("Turnpike-Dropped-Params"); w.Code != 200 || len(got) > maxListed+20 || !strings.HasPrefix(got, "member_00000,member_00001,") || !strings.HasSuffix(got, " more") {
		t.Errorf("status %d, %d bytes: %s", w.Code, len(got), got)
	}
	p.runtime.DroppedParams = "refuse"
	if w := p.serve(r, ask); w.Code != 400 || w.Body.Len() > 2*maxListed || !strings.Contains(w.Body.String(), " more; leave it out") {
		t.Errorf("status %d, %d bytes: %s", w.Code, w.Body.Len(), w.Body)
	}
}

// allDropping is a model of a provider that takes no members.
type allDropping struct{ model.Model }

// Dropped implements model.Translator.
func (allDropping) Dropped(req *model.Request) []string {
	var names []string
	for _, p := range req.Params {
		names = append(names, p.Name)
	}
	return names
}
