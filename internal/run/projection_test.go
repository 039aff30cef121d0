package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// A run that has ended is reported with the events that its first caller got, from every
// position on.
func TestAReplayHasTheEventsOfTheLiveRun(t *testing.T) { // L05
	tools := map[string]func(context.Context, tool.Call) (tool.Result, error){
		"read_look": func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("seen"), nil },
		"once_pay":  func(context.Context, tool.Call) (tool.Result, error) { return tool.Error("no money"), nil },
	}
	// turns answers with one turn after the other, the last one again and again.
	turns := func(all ...func() (*model.Turn, error)) func(context.Context, []item.Item) (*model.Turn, error) {
		n := -1
		return func(context.Context, []item.Item) (*model.Turn, error) {
			n = min(n+1, len(all)-1)
			return all[n]()
		}
	}
	says := func(text string) func() (*model.Turn, error) {
		return func() (*model.Turn, error) { return says(text), nil }
	}
	asks := func(names ...string) func() (*model.Turn, error) {
		return func() (*model.Turn, error) { return asks(names...), nil }
	}
	fails := func(class model.ErrorClass, said string) func() (*model.Turn, error) {
		return func() (*model.Turn, error) {
			turn, _ := says(said)()
			return turn, &model.Error{Class: class, Status: 500, Message: "broken", Err: errors.New("broken")}
		}
	}
	for name, c := range map[string]struct {
		think  func(context.Context, []item.Item) (*model.Turn, error)
		change func(*run.Request)
		want   event.Reason
	}{
		"two rounds of tools":                 {turns(asks("read_look", "once_pay"), asks("read_look"), says("Done.")), nil, event.Complete},
		"a call that nobody owns":             {turns(asks("nothing", "read_look"), says("Done.")), nil, event.Complete},
		"a model call is repeated":            {turns(fails(model.Transient, "half"), asks("read_look"), fails(model.Transient, ""), says("Done.")), nil, event.Complete},
		"the model breaks off for good":       {turns(fails(model.Invalid, "half")), nil, event.ModelError},
		"the caller has to execute":           {turns(asks("read_look", "theirs")), clientTool, event.ClientCalls},
		"the call limit":                      {turns(asks("read_look", "read_look", "read_look")), limitCalls, event.MaxCalls},
		"a tool ends the run":                 {turns(asks("once_pay")), func(r *run.Request) { r.Policy.AbortOnTool = true }, event.ToolAbort},
		"pieces of calls go to the surface":   {turns(asks("read_look"), says("Done.")), func(r *run.Request) { r.Policy.Live = []model.DeltaKind{model.CallDelta} }, event.Complete},
		"ends of items":                       {turns(asks("read_look"), says("Done.")), func(r *run.Request) { r.Policy.ItemEnds = true }, event.Complete},
		"the caller's tool has a server name": {turns(says("Done.")), func(r *run.Request) { clientTool(r); r.ClientTools[0].Name = "once_pay" }, event.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			w := &town{think: c.think, tools: tools}
			r := w.gateway(t)
			req := func() *run.Request {
				req := w.wants("p", "k", "h")
				if c.change != nil {
					c.change(req)
				}
				return req
			}
			var live, repeated diary
			for _, d := range []*diary{&live, &repeated} {
				if err := r.Run(t.Context(), req(), d); err != nil {
					t.Fatal(err)
				}
			}
			if _, end := live.said(); end.Reason != c.want {
				t.Fatalf("it ended with %s, want %s", end.Reason, c.want)
			}
			want := live.encoded(t)
			if diff := cmp.Diff(want, repeated.encoded(t)); diff != "" {
				t.Errorf("live and repeated events differ (-live +repeated):\n%s", diff)
			}
			for i, after := range append([]event.Position{{}}, live.at...) {
				f := eventlog.Follow{Org: "o", RunID: w.theRun(t).Summary.RunID, After: after}
				var stored, followed diary
				if err := eventlog.FollowStored(t.Context(), &w.journal, f, &stored); err != nil {
					t.Fatal(err)
				}
				if err := r.Follow(t.Context(), f, &followed); err != nil {
					t.Fatal(err)
				}
				for how, got := range map[string][]string{"stored": stored.encoded(t), "followed": followed.encoded(t)} {
					if diff := cmp.Diff(want[i:], got, cmpopts.EquateEmpty()); diff != "" {
						t.Errorf("after %v, live and %s events differ (-live +%s):\n%s", after, how, how, diff)
					}
				}
			}
		})
	}
}

// A durable run delivers what the model says in groups, soon after it arrived and never
// before it is stored: a replay has the same pieces at the same positions.
func TestDeltasAreStoredBeforeTheyAreDelivered(t *testing.T) { // L05
	synctest.Test(t, func(t *testing.T) {
		const pace = 3 * time.Millisecond
		text := strings.Repeat("abcdefghij", 10)
		w := &town{pace: pace, think: func(context.Context, []item.Item) (*model.Turn, error) { return says(text), nil }}
		r := w.gateway(t)
		begin, n := time.Now(), 0
		live := &diary{heard: func(at event.Position, e event.Event) {
			d, ok := e.(event.TextDelta)
			if !ok {
				return
			}
			if late := time.Since(begin) - time.Duration(n)*pace; late > 25*time.Millisecond || d.Text != text[n:n+1] {
				t.Errorf("piece %d is %q, delivered %v after it arrived", n, d.Text, late)
			}
			n++
			stored := 0
			for ref := range w.theRun(t).Rows {
				if strings.HasPrefix(ref, "deltas:") {
					stored++
				}
			}
			if stored == 0 || stored > len(text)/2 {
				t.Errorf("at %v, %d groups are stored", at, stored)
			}
		}}
		var replayed diary
		for _, d := range []*diary{live, &replayed} {
			if err := r.Run(t.Context(), w.wants("p", "k", "h"), d); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(live.encoded(t), replayed.encoded(t)); diff != "" || n != len(text) {
			t.Errorf("%d pieces (-live +replayed):\n%s", n, diff)
		}
	})
}

// The pieces of a model call whose owner died stay in the store. The call is made again,
// and a client that follows the run from then on gets only the pieces of the new one.
func TestAModelCallThatLostItsOwnerIsDeliveredOnce(t *testing.T) { // P01 L05
	synctest.Test(t, func(t *testing.T) {
		w := &town{}
		w.leave(t, "run_old", "k", asked(0, 1))
		const seq = 4
		row := journal.Row{Ref: "deltas:4:1", Value: json.RawMessage(`{"v":1,"deltas":[{"kind":"text","text":"half"}]}`)}
		if err := w.journal.Append(t.Context(), journal.Lease{Org: "o", RunID: "run_old", Epoch: 1, Owner: "gone"}, seq, journal.Batch{Rows: []journal.Row{row}, Sync: true}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(journal.LeaseTTL)
		r := w.restarted(t)
		var d diary
		if err := r.Run(t.Context(), w.wants("p", "k", "h"), &d); err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, e := range d.events {
			got = append(got, d.at[i].String()+" "+e.Type())
		}
		want := []string{"1.0 started", "4.0 round_started", "6.0 round_started", "6.1 text_delta", "7.0 round_done", "8.0 finished"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if w.theRun(t).Rows["deltas:4:1"] == nil {
			t.Error("the pieces are not kept")
		}
	})
}

// The ends of items are events of the runs that were accepted with them. Other runs
// have none, whether their pieces are stored or not, also if a
// later build makes a model call of them.
func TestEndsOfItems(t *testing.T) { // L05 O08
	for _, ends := range []bool{true, false} {
		for _, grade := range []loop.Grade{loop.Durable, loop.Light} {
			w := &town{think: func(context.Context, []item.Item) (*model.Turn, error) { return says("Done."), nil }}
			r := w.gateway(t)
			req := w.wants("p", "k", "h")
			req.Policy.Grade, req.Policy.ItemEnds = grade, ends
			if grade == loop.Light {
				req.Key = nil
			}
			var live, followed diary
			if err := r.Run(t.Context(), req, &live); err != nil {
				t.Fatal(err)
			}
			if err := r.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: w.theRun(t).Summary.RunID}, &followed); err != nil {
				t.Fatal(err)
			}
			want := []string{"started", "round_started", "text_delta", "item_done", "round_done", "finished"}
			if !ends {
				want = slices.Delete(want, 3, 4)
			}
			for _, d := range []*diary{&live, &followed} {
				var got []string
				for _, e := range d.events {
					got = append(got, e.Type())
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s, ends %v: %q, want %q", grade, ends, got, want)
				}
			}
			if diff := cmp.Diff(live.encoded(t), followed.encoded(t)); diff != "" && grade == loop.Durable {
				t.Errorf("%s, ends %v (-live +followed):\n%s", grade, ends, diff)
			}
		}
	}
}

// theRun returns the journal of the only run.
func (w *town) theRun(t *testing.T) *journal.Story {
	t.Helper()
	list, err := w.journal.Runs(t.Context(), "o", journal.Query{Limit: 2})
	if err != nil || len(list) != 1 {
		t.Fatalf("%d runs, %v", len(list), err)
	}
	story, err := w.journal.Load(t.Context(), "o", list[0].RunID)
	if err != nil {
		t.Fatal(err)
	}
	return story
}

// encoded returns the events with their positions, which must increase.
func (d *diary) encoded(t *testing.T) (lines []string) {
	t.Helper()
	var last event.Position
	for i, e := range d.events {
		data, err := event.Encode(e)
		if err != nil || d.at[i].Compare(last) <= 0 {
			t.Errorf("event %d is %T at %v, after %v: %v", i, e, d.at[i], last, err)
		}
		last = d.at[i]
		lines = append(lines, last.String()+" "+string(data))
	}
	return lines
}

// The pieces of a model call have the number of its beginning, every other event that
// of its own fact.
func TestThePositionsOfARunsEvents(t *testing.T) { // L05
	w := &town{think: script("read_look"), tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
		"read_look": func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("seen"), nil },
	}}
	var d diary
	if err := w.gateway(t).Run(t.Context(), w.wants("p", "k", "h"), &d); err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, e := range d.events {
		got = append(got, d.at[i].String()+" "+e.Type())
	}
	want := []string{ // 2 input_added, 3 catalogued, 4 turn_started, 5 turn, 6 call_prepared, 7 call_started, 8 call_done, 9 turn_started
		"1.0 started", "4.0 round_started", "5.0 round_done", "7.0 tool_started", "8.0 tool_done",
		"9.0 round_started", "9.1 text_delta", "10.0 round_done", "11.0 finished",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func clientTool(r *run.Request) {
	r.ClientTools = []model.Tool{{Definition: tool.Definition{Name: "theirs", InputSchema: []byte(`{"type":"object"}`)}}}
}

func limitCalls(r *run.Request) {
	r.Policy.Limits = budget.Limits{Calls: 2}.Clamp(budget.MaxRounds)
}
