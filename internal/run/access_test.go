package run

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

// The key of a run is asked about before each model call and each tool call. Whatever it may
// not do any more ends the run there. // P46
func TestTheKeyOfARunIsCheckedBeforeEachCall(t *testing.T) {
	for _, tt := range []struct {
		name, code    string
		from          int // the check that fails, from 0: model, tools, model
		models, tools int // calls that are made
		access        bool
	}{
		{"expired before the first model call", loop.KeyExpired, 0, 0, 0, false},
		{"expired before the tool calls", loop.KeyExpired, 1, 1, 0, false},
		{"revoked before the second model call", loop.KeyRevoked, 2, 1, 1, false},
		{"without the model before the second model call", loop.ModelNotAllowed, 2, 1, 1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			called, checks := 0, 0
			s := newStage(t, box{"echo": func(ctx context.Context, c tool.Call) (tool.Result, error) {
				called++
				return echoes(ctx, c)
			}}, asks("echo"), says("never"))
			s.runner.o.Gone = func(orgID, principal string) string {
				checks++
				if orgID != "o" || principal != "p" {
					t.Errorf("asked about the key %s of %s", principal, orgID)
				}
				if !tt.access && checks > tt.from {
					return tt.code
				}
				return ""
			}
			s.runner.o.Access = func(string, string) org.Access {
				if tt.access && checks > tt.from {
					return org.Access{Models: []string{"other"}}
				}
				return org.Access{}
			}
			end := s.run(t)
			if end.Reason != event.Cancelled || s.model.calls() != tt.models || called != tt.tools {
				t.Errorf("%+v after %d model calls and %d tool calls, want %d and %d", end, s.model.calls(), called, tt.models, tt.tools)
			}
			if !strings.Contains(end.Failure.Message, "API key that started the run") {
				t.Errorf("the caller is told %q", end.Failure.Message)
			}
		})
	}
}

// A call whose tool the key may not use any more is not sent, and has a result. // P46
func TestACallThatTheKeyMayNotMakeIsNotSent(t *testing.T) {
	called := false
	s := newStage(t, box{"echo": func(ctx context.Context, c tool.Call) (tool.Result, error) {
		called = true
		return echoes(ctx, c)
	}}, asks("echo"), says("Done."))
	prepared := false
	s.journal.fail = func(b loop.Body) error {
		prepared = prepared || b.Kind() == loop.KindCallPrepared
		return nil
	}
	s.runner.o.Access = func(string, string) org.Access {
		if prepared {
			return org.Access{Tools: []string{}}
		}
		return org.Access{}
	}
	if end := s.run(t); end.Reason != event.Complete || called {
		t.Errorf("%+v, called: %v", end, called)
	}
	if got := s.model.results(1); len(got) != 1 || !strings.Contains(got[0], "not available to this run any more") {
		t.Errorf("the model was told %q", got)
	}
	if done := s.journal.done(); !slices.ContainsFunc(done, func(d loop.CallDone) bool { return d.Outcome == loop.NotRun }) {
		t.Errorf("the journal has %+v", done)
	}
}
