package run_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// A run that is to be forgotten stores its texts when it waits. Then it can be followed from its
// beginning, with the same events, and the next owner has all that it needs. // G17
func TestARunThatIsToBeForgottenIsWholeWhenItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{tools: tools{"read_a": func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("seen"), nil }, "once_b": func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("paid"), nil }}}
		w.think = func(_ context.Context, transcript []item.Item) (*model.Turn, error) {
			switch got := results(transcript); len(got) {
			case 0:
				return asks("read_a", "none"), nil
			case 2:
				return asks("once_b"), nil
			default:
				return says(strings.Join(got, " ")), nil
			}
		}
		r := w.gateway(t)
		if err := r.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		req := w.wants("p", "k", "h")
		req.Key, req.Policy.Grade, req.Policy.NoStore, req.Policy.Live = nil, loop.Light, true, []model.DeltaKind{model.TextDelta, model.CallDelta}
		req.Policy.Approvals = []loop.ServerApproval{{Server: "s", WaitMS: 60_000, ByServer: policy.Approval{Always: &policy.Tools{Names: []string{"once_b"}}}}}
		var live diary
		live.heard = func(_ event.Position, e event.Event) {
			started, ok := live.events[0].(event.Started)
			if _, parked := e.(event.Waiting); ok && !parked {
				if story, err := w.journal.Load(t.Context(), "o", started.RunID); err != nil || len(story.Rows) > 0 {
					t.Errorf("at %T, %d rows are stored, %v", e, len(story.Rows), err)
				}
			}
		}
		if err := r.Run(t.Context(), req, &live); err != nil {
			t.Fatal(err)
		}
		id := live.events[0].(event.Started).RunID
		var stored diary
		if err := eventlog.FollowStored(t.Context(), &w.journal, eventlog.Follow{Org: "o", RunID: id, ToWaiting: true}, &stored); err != nil {
			t.Fatal(err)
		}
		text := func(events []event.Event) (out []string) { // a turn of a light run is stored as a whole
			for _, e := range events {
				switch e := e.(type) {
				case event.CallDelta:
					out = append(out, e.Name+e.Arguments)
				case event.ToolStarted:
					out = append(out, "start "+e.Name+string(e.Arguments))
				case event.ToolDone:
					out = append(out, e.Name+" "+e.Text)
				case event.Waiting:
					out = append(out, fmt.Sprint(len(e.Approvals), " ", string(e.Approvals[0].Arguments)))
				}
			}
			return out
		}
		if diff := cmp.Diff(text(live.events), text(stored.events)); diff != "" {
			t.Errorf("live (-) and stored (+):\n%s", diff)
		}
		found, err := w.journal.Approvals(t.Context(), "o", journal.ApprovalQuery{Limit: 10})
		if err != nil || len(found) != 1 {
			t.Fatalf("%+v %v", found, err)
		}
		if _, err := r.Decisions().Decide(t.Context(), "o", found[0].ID, journal.Decision{Approved: true},
			run.TrustedDecider(org.Author{Principal: "boss"})); err != nil {
			t.Fatal(err)
		}
		var whole diary
		if err := r.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: id}, &whole); err != nil {
			t.Fatal(err)
		}
		if text, end := whole.said(); end.Reason != event.Complete || !strings.HasPrefix(text, "seen") || !strings.HasSuffix(text, "paid") {
			t.Errorf("%q, %s", text, end.Reason)
		}
	})
}
