package run

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// translation is a relay to a provider of another dialect, with limits that would end
// any other run.
func translation(t *testing.T, turns ...answer) *stage {
	s := newStage(t, nil, turns...)
	s.req.Relay, s.req.ID, s.req.Policy.Live = &Relay{}, "req_1", []model.DeltaKind{model.TextDelta}
	s.req.Policy.Limits.ActiveMS, s.req.Policy.Limits.Tokens, s.req.Policy.Limits.Calls, s.req.Policy.Slots = 1, 1, 1, 1
	s.req.Dialect, s.req.Policy.MaxTokens = "mine", 77
	s.req.ClientTools = []model.Tool{{Definition: tool.Definition{Name: "f"}}}
	s.req.ToolChoice = model.ToolChoice{Mode: "required"}
	s.journal.fail = func(loop.Body) error { return errors.New("a relay has no stored run") }
	return s
}

// row keeps the last audit entry.
type row struct{ audit.Entry }

// Record implements Recorder.
func (r *row) Record(_ context.Context, _ string, e audit.Entry) error { r.Entry = e; return nil }

func cutAfterCall(context.Context, func(model.Delta) error) (*model.Turn, error) {
	turn := turnOf("f", "g")
	turn.Stop, turn.Calls[1].Complete, turn.Items = model.StopLength, false, turn.Items[:1]
	return turn, nil
}

func TestATranslatedRelayIsOneModelCall(t *testing.T) {
	half := func(context.Context, func(model.Delta) error) (*model.Turn, error) {
		return turnOf("f"), &model.Error{Class: model.Transient, Status: 200, Message: "ended the stream"}
	}
	refused := func(context.Context, func(model.Delta) error) (*model.Turn, error) {
		return nil, &model.Error{Class: model.Target, Status: 401, Message: "who are you"}
	}
	for _, tt := range []struct {
		name   string
		turn   answer
		reason event.Reason
		calls  []event.ClientCall
		code   string // of the failure
		status string // of the audit row, with that of HTTP
	}{
		{"an answer", says("hi"), event.Complete, nil, "", "ok 200"},
		{"calls, known to the client or not", asks("f", "ghost"), event.ClientCalls, []event.ClientCall{{ID: "p0", Name: "f", Arguments: `{"n":0}`}, {ID: "p1", Name: "ghost", Arguments: `{"n":1}`}}, "", "ok 200"},
		{"an answer that is cut after a call", cutAfterCall, event.OutputCut, []event.ClientCall{{ID: "p0", Name: "f", Arguments: `{"n":0}`}}, "", "ok 200"},
		{"a stream that breaks after a call", half, event.ModelError, nil, "model_error", "failed 200"},
		{"a provider that cannot be reached", breaks(model.Transient), event.ModelError, nil, "model_error", "failed 0"},
		{"a context that is too long", breaks(model.TooLong), event.TooLong, nil, "context_length_exceeded", "failed 0"},
		{"a credential that is refused", refused, event.ModelError, nil, "upstream_credential_refused", "failed 401"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := translation(t, tt.turn)
			kept := &row{}
			s.runner.o.Recorder = kept
			if err := s.runner.Run(t.Context(), s.req, s.sink); err != nil {
				t.Fatal(err)
			}
			end := s.sink.end(t)
			code := ""
			if end.Failure != nil {
				code = end.Failure.Code
			}
			if end.Reason != tt.reason || code != tt.code || end.GaveUp || end.SideEffects {
				t.Errorf("%+v, %+v", end, end.Failure)
			}
			if diff := cmp.Diff(tt.calls, end.Calls); diff != "" {
				t.Error(diff)
			}
			if n := s.model.calls(); n != 1 {
				t.Fatalf("%d model calls, want 1", n)
			}
			sent := s.model.asked[0]
			if sent.MaxTokens != 77 || sent.Dialect != "mine" || len(sent.Tools) != 1 || sent.ToolChoice.Mode != "required" || len(sent.Items) != 1 {
				t.Errorf("the model got %+v", sent)
			}
			body := kept.Body.(audit.Request)
			if got := fmt.Sprint(body.Status, " ", body.HTTPStatus); got != tt.status || body.Surface != audit.SurfaceRelay || kept.RequestID != "req_1" || kept.RunID != "" || body.ToolCalls < len(end.Calls) {
				t.Errorf("audit %+v of %+v, want %s", body, kept.Entry, tt.status)
			}
			if started := s.sink.events[0].(event.Started); started.RunID != "req_1" {
				t.Errorf("%+v", started)
			}
		})
	}
}

// A translated relay has no deadline, and no limit of the org's runs.
func TestATranslatedRelayHasNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := translation(t, func(ctx context.Context, emit func(model.Delta) error) (*model.Turn, error) {
			for range 24 {
				time.Sleep(time.Hour)
				if err := emit(model.Delta{Text: "still "}); err != nil {
					return nil, err
				}
			}
			return says("here")(ctx, emit)
		})
		if err := s.runner.Run(t.Context(), s.req, s.sink); err != nil {
			t.Fatal(err)
		}
		if end := s.sink.end(t); end.Reason != event.Complete || end.Usage.Input != 10 {
			t.Errorf("%+v", end)
		}
	})
}

func TestATranslatedRelayEndsWithItsClient(t *testing.T) {
	for name, leave := range map[string]func(s *stage, cancel func()){
		"the request ends": func(_ *stage, cancel func()) { cancel() },
		"nothing can be written any more": func(s *stage, _ func()) {
			s.sink.fail = func(event.Event) error { return errors.New("broken pipe") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var s *stage
			s = translation(t, func(ctx context.Context, emit func(model.Delta) error) (*model.Turn, error) {
				leave(s, cancel)
				_ = emit(model.Delta{Text: "x"})
				<-ctx.Done()
				return nil, &model.Error{Class: model.Gone, Err: ctx.Err()}
			})
			if err := s.runner.Run(ctx, s.req, s.sink); err != nil {
				t.Fatal(err)
			}
			if last := s.sink.events[len(s.sink.events)-1].(event.Finished); last.Reason != event.CallerGone {
				t.Errorf("%+v", last)
			}
		})
	}
}

// A forced choice that no tool of the request satisfies is refused before the
// provider is asked. // C25
func TestATranslatedRelayRefusesAToolChoiceWithoutTools(t *testing.T) {
	for name, choice := range map[string]model.ToolChoice{
		"any tool":                       {Mode: "required"},
		"ghost":                          {Mode: "named", Name: "ghost"},
		"any of the allowed tools":       {Mode: "required", Only: []string{"ghost"}},
		"any of the allowed tools, none": {Mode: "required", Only: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := translation(t, says("never"))
			s.req.ToolChoice = choice
			if choice.Only == nil {
				s.req.ClientTools = nil
			}
			err := s.runner.Run(t.Context(), s.req, s.sink)
			var refused *fault.Error
			if !errors.As(err, &refused) || refused.Code != fault.Invalid || refused.Param != "tool_choice" || s.model.calls() != 0 || len(s.sink.events) != 0 {
				t.Errorf("%v, %d model calls", err, s.model.calls())
			}
		})
	}
}

// translator is a model that names what it is asked about.
type translator struct {
	speaker
	of []*model.Request
}

// Dropped implements model.Translator.
func (m *translator) Dropped(req *model.Request) []string {
	m.of = append(m.of, req)
	return []string{"seed"}
}

// What a target leaves out is asked of the request that it would get.
func TestDroppedAsksEveryTarget(t *testing.T) {
	one, two := &translator{}, &translator{}
	req := &Request{
		Input:  Input{Conversation: Conversation{Dialect: "mine", Items: []item.Item{{Kind: item.Reasoning, Native: item.Native{Dialect: "d", Provider: "c", JSON: []byte("{}")}}, item.NewText(item.User, "go")}}, Targets: []route.Target{{Target: loop.Target{Provider: "a", Model: "m1"}, Client: one}, {Target: loop.Target{Provider: "b", Model: "m2"}, Client: &speaker{}}, {Target: loop.Target{Provider: "c", Model: "m3"}, Client: two}}},
		Policy: loop.Policy{MaxTokens: 7},
	}
	got, err := new(Runner).Dropped(t.Context(), req)
	if diff := cmp.Diff([]Dropped{{"a", []string{"seed"}}, {"c", []string{"seed"}}}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if got := two.of[0]; got.Model != "m3" || got.MaxTokens != 7 || got.Dialect != "mine" || len(got.Tools) != 0 || got.Items[0].Native.JSON == nil {
		t.Errorf("%+v", got)
	}
	if first := one.of[0]; first.Items[0].Kind == item.Reasoning && first.Items[0].Native.JSON != nil {
		t.Errorf("provider a was asked about the reasoning of provider c: %+v", first.Items)
	}
}

// The tools of MCP servers are not listed yet: what stands for them has a name, as they do.
func TestDroppedAsksWithATool(t *testing.T) {
	one := &translator{}
	req := &Request{Input: Input{Conversation: Conversation{Items: []item.Item{item.NewText(item.User, "go")}}, Targets: []route.Target{{Target: loop.Target{Provider: "a", Model: "m1"}, Client: one}}, RequestServers: []RequestServer{{Label: "docs"}}}}
	if _, err := new(Runner).Dropped(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if tools := one.of[0].Tools; len(tools) != 1 || tools[0].Name == "" {
		t.Errorf("asked with the tools %+v", tools)
	}
}
