package chat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/relay"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
)

// teller is a Runner that tells its events, or does what its function does.
type teller struct {
	events []event.Event
	do     func(ctx context.Context, sink eventlog.Sink) error
	got    *run.Request
}

// Run implements Runner.
func (r *teller) Run(ctx context.Context, req *run.Request, sink eventlog.Sink) error {
	r.got = req
	for _, e := range r.events {
		if err := sink.Emit(event.Position{}, e); err != nil {
			return err
		}
	}
	if r.do != nil {
		return r.do(ctx, sink)
	}
	return nil
}

// Dropped implements Runner.
func (r *teller) Dropped(ctx context.Context, req *run.Request) ([]run.Dropped, error) {
	return new(run.Runner).Dropped(ctx, req)
}

// Start implements Runner.
func (*teller) Start(context.Context, *run.Request) (string, error) { return "", nil }

// CountInput implements Runner.
func (*teller) CountInput(context.Context, *run.Request) (int64, bool, error) { return 0, false, nil }

func begun() event.Event {
	return event.Started{RunID: "run_1", Model: "m", At: time.Unix(1700000000, 0)}
}

// chatModel is a model of a provider that speaks the dialect.
type chatModel struct{ model.Model }

// Relays implements relay.Model.
func (chatModel) Relays(dialect string) bool { return dialect == model.DialectChat }

// Relay implements relay.Model.
func (chatModel) Relay(context.Context, *relay.Request) (*relay.Response, error) {
	return nil, errors.New("nothing is relayed here")
}

// serve answers a body with what the runner tells, for an org whose loop is on.
func serve(r *teller, mode org.StreamMode, body string, beats *sse.Heartbeats, extensions ...string) *httptest.ResponseRecorder {
	if beats == nil {
		beats = sse.NewHeartbeats(0)
	}
	h := New(surface.Options{
		MaxRoundsCap: func() int { return 50 }, Runner: r, Heartbeats: beats, Log: slog.New(slog.DiscardHandler),
		Router: route.New([]route.Provider{{Name: "up", Models: []string{"m"}, Model: chatModel{}}}),
	})
	w := httptest.NewRecorder()
	caller := caller.Caller{
		Org:       &org.Org{ID: "o", MCPOutbound: true, Runtime: org.Runtime{StreamMode: mode, Extensions: extensions}},
		Principal: org.Principal{ID: "p", Role: org.Member},
		Servers:   make([]catalog.Server, 1),
	}
	answer(h, w, httptest.NewRequest("POST", "/v1/chat/completions", strings.NewReader(body)), caller)
	return w
}

// answer serves a request as the HTTP server does.
func answer(h *Handler, w http.ResponseWriter, r *http.Request, caller caller.Caller) {
	if err := h.Serve(w, r, caller); err != nil {
		Errors().Write(w, err)
	}
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	out, err := surface.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const ask = `{"model":"m","messages":[{"role":"user","content":"go"}]}`

const askStream = `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"go"}]}`

// contents returns the text of a stream and its frames without the text.
func frames(t *testing.T, w *httptest.ResponseRecorder) []string {
	t.Helper()
	var out []string
	for f := range strings.SplitSeq(w.Body.String(), "\n\n") {
		if data, ok := strings.CutPrefix(f, "data: "); ok {
			out = append(out, data)
		} else if f != "" && !strings.HasPrefix(f, ":") {
			t.Fatalf("frame %q", f)
		}
	}
	return out
}

// The texts of a run, in every mode: what the stream says after its last parting
// is what JSON says.
func TestTheFinalTextIsTheSameInEveryForm(t *testing.T) {
	type step = event.Event
	text := func(round int, s string) step { return event.TextDelta{Round: round, Text: s} }
	opens := func(round int) step { return event.RoundStarted{Round: round, Attempt: 1} }
	ends := func(r event.Reason) step { return event.Finished{Reason: r, Rounds: 2} }
	for _, tt := range []struct {
		name  string
		steps []step
		final string // JSON, and the text of final_only
		live  string
	}{
		{"one round", []step{opens(0), text(0, "Hel"), text(0, "lo"), ends(event.Complete)}, "Hello", "Hello"},
		{"two rounds", []step{opens(0), text(0, "One"), opens(1), text(1, "Two"), ends(event.Complete)}, "Two", "One\n\nTwo"},
		{"a silent round between", []step{opens(0), text(0, "One"), opens(1), opens(2), text(2, "Three"), ends(event.Complete)}, "Three", "One\n\nThree"},
		{"a silent last round", []step{opens(0), text(0, "One"), opens(1), ends(event.Complete)}, "", "One\n\n"},
		{"a limit", []step{opens(0), text(0, "One"), opens(1), text(1, "Two"), ends(event.MaxRounds)}, "One\n\nTwo", "One\n\nTwo"},
		{"a limit after a silent round", []step{opens(0), text(0, "One"), opens(1), ends(event.Deadline)}, "One", "One"},
		{"nothing at all", []step{opens(0), ends(event.Complete)}, "", ""},
		{"an attempt that is void", []step{opens(0), event.RoundStarted{Round: 0, Attempt: 2}, text(0, "ok"), ends(event.Complete)}, "ok", "ok"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			steps := append([]step{begun()}, tt.steps...)
			json := serve(&teller{events: steps}, org.Live, ask, nil)
			if want := `"content":` + string(marshal(t, tt.final)); !strings.Contains(json.Body.String(), want) {
				t.Errorf("JSON lacks %s: %s", want, json.Body)
			}
			for mode, want := range map[org.StreamMode]string{org.Live: tt.live, org.FinalOnly: tt.final} {
				got := ""
				for _, f := range frames(t, serve(&teller{events: steps}, mode, askStream, nil)) {
					got += textOf(f)
				}
				if got != want {
					t.Errorf("%s says %q, want %q", mode, got, want)
				}
			}
		})
	}
}

func textOf(f string) string {
	_, rest, ok := strings.Cut(f, `"delta":`)
	if !ok {
		return ""
	}
	rest, _, _ = strings.Cut(rest, `,"logprobs"`)
	var d delta
	if err := jsonUnmarshal(rest, &d); err != nil || d.Content == nil {
		return ""
	}
	return *d.Content
}

// G01
func TestFinalTextLeavesInSmallWholeFrames(t *testing.T) {
	for _, text := range []string{strings.Repeat("😀", 100), strings.Repeat("é", 100), strings.Repeat("a", 129), "a" + strings.Repeat("😀", 50), strings.Repeat("\x80", 200)} {
		w := serve(&teller{events: []event.Event{begun(), event.RoundStarted{}, event.TextDelta{Text: text}, event.Finished{Reason: event.Complete}}}, org.FinalOnly, askStream, nil)
		whole := ""
		for _, f := range frames(t, w) {
			got := textOf(f)
			if len(got) > surface.SmallPiece && !strings.Contains(text, "\x80") {
				t.Errorf("a frame of %d bytes", len(got))
			}
			whole += got
		}
		if want := strings.ToValidUTF8(text, "\uFFFD"); whole != want && !strings.Contains(text, "\x80") {
			t.Errorf("the frames say %q, want %q", whole, want)
		}
	}
}

// The frames of a stream, one by one. // G05 G16
func TestAStreamHasOneEnd(t *testing.T) {
	w := serve(&teller{events: []event.Event{
		begun(), event.RoundStarted{}, event.ReasoningDelta{Text: "hm"}, event.TextDelta{Text: "<hi>"}, event.RoundDone{Stop: model.StopCalls},
		event.Finished{Reason: event.ClientCalls, Calls: []event.ClientCall{{ID: "c", Name: "f", Arguments: `{"a":1}`}}, Usage: model.Usage{Input: 1, Output: 2}},
	}}, org.Live, askStream, nil)
	const head = `{"id":"chatcmpl-run_1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":`
	want := []string{
		head + `[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`,
		head + `[{"index":0,"delta":{"reasoning_content":"hm"},"logprobs":null,"finish_reason":null}]}`,
		head + `[{"index":0,"delta":{"content":"<hi>"},"logprobs":null,"finish_reason":null}]}`,
		head + `[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},"logprobs":null,"finish_reason":null}]}`,
		head + `[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}]}`,
		head + `[],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}`,
		"[DONE]",
	}
	got := frames(t, w)
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("frame %d of\n%s\nwant\n%s", i, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if w.Header().Get("Turnpike-Run-Id") != "run_1" {
		t.Errorf("header %v", w.Header())
	}
}

// M06 B05
func TestWhyARunEndedInTheDialectsWords(t *testing.T) {
	for reason, want := range map[event.Reason]string{
		event.Complete: "stop", event.ClientCalls: "tool_calls", event.MaxRounds: "length", event.MaxCalls: "length",
		event.Deadline: "length", event.Tokens: "length", event.Money: "length", event.NoProgress: "length",
		event.OutputCut: "length", event.Refused: "content_filter",
	} {
		if got := finishReasons[reason]; got != want || reason.Failed() {
			t.Errorf("%s is %s, want %s", reason, got, want)
		}
	}
}

// An end that is a failure has one form before anything has left, and another
// after it.
func TestHowAFailureLooks(t *testing.T) {
	upstream := &model.Error{Status: 429, Dialect: model.DialectChat, Header: http.Header{"Retry-After": {"7"}}, Body: []byte("{\"error\":{\"message\":\"slow\"},\n\"x\":1}")}
	page := &model.Error{Status: 500, Dialect: model.DialectChat, Body: []byte("<html>oops</html>")}
	for _, tt := range []struct {
		name   string
		end    event.Finished
		status int
		body   string // of JSON; "" = our own form, in a line
		frame  string // of a stream that has begun
	}{
		{"the provider's own error", event.Finished{Reason: event.ModelError, Failure: &event.Failure{Code: "model_error", Message: "slow", Upstream: upstream}},
			429, string(upstream.Body), `{"error":{"message":"slow"},"x":1}`},
		{"a page of the provider", event.Finished{Reason: event.ModelError, Failure: &event.Failure{Code: "model_error", Message: "it answered 500", Upstream: page}},
			500, "", `{"error":{"message":"it answered 500","type":"upstream_error","param":null,"code":"model_error"}}`},
		{"no answer of the provider", event.Finished{Reason: event.ModelError, Failure: &event.Failure{Code: "model_error", Message: "nobody there", Upstream: &model.Error{}}},
			502, "", `{"error":{"message":"nobody there","type":"upstream_error","param":null,"code":"model_error"}}`},
		{"a blocked address", event.Finished{Reason: event.Blocked, Failure: &event.Failure{Code: "outbound_ssrf_blocked", Message: "ssrf_blocked:private", Address: "10.0.0.1"}}, // K04
			403, "", `{"error":{"message":"outbound_ssrf_blocked: ssrf_blocked:private","type":"permission_error","param":null,"code":"outbound_ssrf_blocked"}}`},
		{"a name conflict", event.Finished{Reason: event.Invalid, Failure: &event.Failure{Code: "tool_name_conflict", Message: "conflicts with"}}, // A16
			422, "", `{"error":{"message":"conflicts with","type":"invalid_request_error","param":null,"code":"tool_name_conflict"}}`},
		{"a context that does not fit", event.Finished{Reason: event.TooLong, Failure: &event.Failure{Code: "context_length_exceeded", Message: "too long"}},
			400, "", `{"error":{"message":"too long","type":"invalid_request_error","param":null,"code":"context_length_exceeded"}}`},
		{"a server that is down", event.Finished{Reason: event.ServerUnavailable, Failure: &event.Failure{Code: "server_unavailable", Message: "down"}},
			503, "", `{"error":{"message":"down","type":"unavailable_error","param":null,"code":"server_unavailable"}}`},
	} {
		for _, spoken := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, spoken %t", tt.name, spoken), func(t *testing.T) {
				tt.end.SideEffects = true
				events := []event.Event{begun(), event.RoundStarted{}}
				if spoken {
					events = append(events, event.TextDelta{Text: "Hel"})
				}
				events = append(events, tt.end)
				want := tt.body
				if want == "" {
					want = tt.frame + "\n"
				}
				json := serve(&teller{events: events}, org.Live, ask, nil)
				if json.Code != tt.status || json.Body.String() != want || json.Header().Get("X-Should-Retry") != "false" {
					t.Errorf("JSON: status %d, %s, header %v", json.Code, json.Body, json.Header())
				}
				streamed := serve(&teller{events: events}, org.Live, askStream, nil)
				if !spoken {
					if streamed.Code != tt.status || streamed.Body.String() != want || streamed.Header().Get("Retry-After") != json.Header().Get("Retry-After") {
						t.Errorf("stream: status %d, %s", streamed.Code, streamed.Body)
					}
					return
				}
				got := frames(t, streamed) // G17
				if n := len(got); streamed.Code != 200 || n != 4 || got[2] != tt.frame || got[3] != "[DONE]" {
					t.Errorf("stream: %q", got)
				}
			})
		}
	}
}

// A run that could not be recorded is a 500 that hides its cause.
func TestARunThatCouldNotBeRecordedIs500(t *testing.T) {
	broken := func(context.Context, eventlog.Sink) error { return errors.New("CANARY disk full") }
	for _, body := range []string{ask, askStream} {
		w := serve(&teller{do: broken}, org.Live, body, nil)
		if w.Code != 500 || strings.Contains(w.Body.String(), "CANARY") || !strings.Contains(w.Body.String(), "internal_error") {
			t.Errorf("status %d: %s", w.Code, w.Body)
		}
	}
	w := serve(&teller{events: []event.Event{begun(), event.TextDelta{Text: "Hel"}}, do: broken}, org.Live, askStream, nil)
	if got := frames(t, w); len(got) != 4 || !strings.Contains(got[2], "internal_error") || got[3] != "[DONE]" || strings.Contains(w.Body.String(), "CANARY") {
		t.Errorf("%q", got)
	}
}

// A heartbeat may begin the stream at any moment, also between the end of a run
// and the answer that says so: the client is told in one of the two forms.
func TestAHeartbeatAtTheWrongMomentHidesNoFailure(t *testing.T) { // G14 G17
	for _, when := range []string{"before the end", "after the end"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				beats := sse.NewHeartbeats(time.Second)
				beats.Start()
				defer beats.Stop()
				r := &teller{do: func(_ context.Context, sink eventlog.Sink) error {
					if when == "before the end" {
						time.Sleep(3 * time.Second) // of the bubble's clock
					}
					err := sink.Emit(event.Position{}, event.Finished{Reason: event.ModelError, Failure: &event.Failure{Code: "model_error", Message: "broken"}})
					if when == "after the end" {
						time.Sleep(3 * time.Second)
					}
					return err
				}}
				w := serve(r, org.Live, askStream, beats)
				if !strings.Contains(w.Body.String(), `"code":"model_error"`) {
					t.Errorf("status %d: %q", w.Code, w.Body)
				}
				if w.Code == 200 && !strings.HasSuffix(w.Body.String(), "data: [DONE]\n\n") {
					t.Errorf("the stream has no end: %q", w.Body)
				}
			})
		})
	}
}

// A request that was held open while its run waits ends with an error that says so, and that it
// can be sent again. A run that was resumed has more events, and the answer then ends as if it
// had never waited.
func TestTheAnswerOfARunThatWaits(t *testing.T) {
	said := []event.Event{begun(), event.RoundStarted{Attempt: 1}, event.TextDelta{Text: "May I?"}, event.RoundDone{}, event.Waiting{Rounds: 1}}
	resumed := append(slices.Clip(said), event.RoundStarted{Round: 1, Attempt: 1}, event.TextDelta{Round: 1, Text: "Done."}, event.Finished{Reason: event.Complete})
	for _, mode := range []org.StreamMode{org.Live, org.FinalOnly} {
		if got := serve(&teller{events: said}, mode, askStream, nil).Body.String(); strings.Contains(got, "finish_reason\":\"stop") || !strings.Contains(got, "approval_pending") || (mode == org.Live) != strings.Contains(got, "May I?") {
			t.Errorf("%s: %s", mode, got)
		}
		if got := strings.Join(frames(t, serve(&teller{events: resumed}, mode, askStream, nil)), ""); strings.Count(got, `"finish_reason":"stop"`) != 1 || !strings.Contains(got, "Done.") {
			t.Errorf("%s: %s", mode, got)
		}
	}
	for _, c := range []struct {
		events []event.Event
		want   string
	}{{said, `approval_pending`}, {resumed, `"content":"Done."`}} {
		if w := serve(&teller{events: c.events}, org.Live, ask, nil); !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("got %s, want %s", w.Body, c.want)
		}
	}
}

// A sink whose client has gone says so, so that the run ends.
func TestAClientThatHasGoneIsSaidToTheRun(t *testing.T) {
	var told error
	r := &teller{do: func(_ context.Context, sink eventlog.Sink) error {
		_ = sink.Emit(event.Position{}, begun())
		for range 3 {
			told = sink.Emit(event.Position{}, event.TextDelta{Text: "x"})
		}
		return nil
	}}
	h := New(surface.Options{MaxRoundsCap: func() int { return 50 }, Runner: r, Heartbeats: sse.NewHeartbeats(0), Log: slog.New(slog.DiscardHandler), Router: route.New([]route.Provider{{Name: "up", Models: []string{"m"}, Model: chatModel{}}})})
	caller := caller.Caller{Org: &org.Org{MCPOutbound: true}, Principal: org.Principal{Role: org.Owner}, Servers: make([]catalog.Server, 1)}
	answer(h, goneWriter{httptest.NewRecorder()}, httptest.NewRequest("POST", "/", strings.NewReader(askStream)), caller)
	if told == nil {
		t.Error("nobody said that the client has gone")
	}
}

type goneWriter struct{ *httptest.ResponseRecorder }

func (goneWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }
