package run

import (
	"context"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// redactor is a hook that changes what is labelled, and keeps what it was asked.
type redactor struct{ asked []HookQuestion }

func (r *redactor) Ask(_ context.Context, q HookQuestion) (HookAnswer, error) {
	r.asked = append(r.asked, q)
	text := "redacted"
	if q.Label == "" {
		return HookAnswer{}, nil
	}
	return HookAnswer{Verdict: loop.HookModify, Output: &text}, nil
}

// The label of a result is in the journal, in the item, in the event, and in what hooks after the call get. A rule
// before the response can name it. // E10 K12
func TestTheLabelOfAResult(t *testing.T) {
	page := func(context.Context, tool.Call) (tool.Result, error) {
		r := tool.Text("a page")
		r.Label = item.Untrusted
		return r, nil
	}
	for name, want := range map[string]item.Label{"read_page": item.Untrusted, "echo": ""} {
		hook := &redactor{}
		s := newStage(t, box{"read_page": page, "echo": echoes}, asks(name), says("Done."))
		s.runner.o.Hooks = hook
		s.req.Policy.Hooks = []loop.Hook{
			{ID: "after", Point: loop.PostToolUse, Type: loop.HookFunction},
			{ID: "before", Point: loop.PreResponse, Type: loop.HookRules, Rules: []loop.HookRule{{Condition: `label IN ["untrusted"]`, Message: "it has read a page"}}},
		}
		s.run(t)
		if len(hook.asked) != 1 || hook.asked[0].Label != want {
			t.Errorf("%s: the hook was asked %+v", name, hook.asked)
		}
		denied, found := false, false
		for _, f := range s.journal.facts {
			switch b := f.Body.(type) {
			case loop.CallDone:
				found = true
				list, ok := s.journal.rows[b.ResultRef].(item.List)
				if b.Label != want || !ok || len(list) != 1 || list[0].Label != want {
					t.Errorf("%s: %+v with %#v", name, b, s.journal.rows[b.ResultRef])
				}
			case loop.HookRan:
				denied = denied || b.Verdict == loop.HookDeny && b.Message == "it has read a page"
			}
		}
		if !found || denied != (want != "") {
			t.Errorf("%s: found %v, denied %v", name, found, denied)
		}
		for _, e := range s.sink.events {
			if done, ok := e.(event.ToolDone); ok && (done.Label != string(want) || want != "" && done.Text != "redacted") {
				t.Errorf("%s: %+v", name, done)
			}
		}
	}
}

// A cached result keeps its label.
func TestACachedResultKeepsItsLabel(t *testing.T) {
	for _, label := range []item.Label{"", item.Untrusted} {
		r := tool.Text("x")
		r.Label = label
		value, err := cacheValue(toolexec.Again(r, toolexec.Cap{}))
		if err != nil {
			t.Fatal(err)
		}
		if again, ok := fromValue(value); !ok || again.Label != label || item.PlainText(again.Parts) != "x" {
			t.Errorf("%q: %+v", label, again)
		}
	}
}
