package run_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// appends is a journal that calls a function before each batch with a fact of a kind.
type appends struct {
	journal.Journal
	before map[loop.Kind]func()
}

func (a *appends) Append(ctx context.Context, lease journal.Lease, after int64, b journal.Batch) error {
	for _, f := range b.Facts {
		if call := a.before[f.Body.Kind()]; call != nil {
			delete(a.before, f.Body.Kind())
			call()
		}
	}
	return a.Journal.Append(ctx, lease, after, b)
}

// A rewind at each moment of a run of the same conversation. In front of its begin the run sees what is left; from then until
// its end is stored the rewind is refused; and the run's own part is never lost.
func TestARewindMeetsARun(t *testing.T) {
	for name, tt := range map[string]struct {
		at   loop.Kind
		busy bool
	}{
		"between what was read and the begin": {loop.KindAccepted, false},
		"before the model is asked":           {loop.KindTurnStarted, true},
		"when its part is stored":             {loop.KindFinished, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := &town{}
			w.journal.Conversations = &w.conversations
			var seen []string
			w.think = func(_ context.Context, transcript []item.Item) (*model.Turn, error) {
				seen = nil
				for _, it := range transcript {
					seen = append(seen, it.Text())
				}
				return says("done"), nil
			}
			batches := &appends{Journal: &w.journal, before: map[loop.Kind]func(){}}
			r := w.gatewayWith(t, func(o *run.Options) { o.Journal = batches })
			first, key := w.inSession(t)
			turn := func(n int) string {
				t.Helper()
				req := *first
				req.RunID = fmt.Sprintf("run_%026d", n)
				req.Items = []item.Item{item.NewText(item.User, fmt.Sprint("question ", n))}
				req.Key = &journal.SubmitKey{Principal: "p", Key: fmt.Sprint(n), Hash: "h"}
				if err := r.Run(t.Context(), &req, &diary{}); err != nil {
					t.Fatal(err)
				}
				return conversation.SegmentID(req.RunID, "")
			}
			one, two := turn(1), turn(2)
			rewound := fmt.Errorf("not tried")
			batches.before[tt.at] = func() {
				_, _, rewound = conversation.Rewind(t.Context(), &w.conversations, "o", key.ID, two, time.Hour)
			}
			three := turn(3)
			want, parts := []string{"question 1", "done", "question 3"}, []string{one, three}
			if tt.busy {
				want, parts = []string{"question 1", "done", "question 2", "done", "question 3"}, []string{one, two, three}
			}
			if is := rewound != nil && fault.From(rewound).Reason == "session_busy"; is != tt.busy || !tt.busy && rewound != nil {
				t.Errorf("the rewind was answered %v", rewound)
			}
			if !slices.Equal(seen, want) {
				t.Errorf("the model saw %q, want %q", seen, want)
			}
			c, err := w.conversations.Find(t.Context(), "o", "", key)
			if err != nil || !slices.Equal(c.Parts, parts) {
				t.Errorf("the conversation is %+v, want the parts %v; %v", c, parts, err)
			}
		})
	}
}

// An owner of a run that has not noticed its end, and that the run was rewound since, adds nothing again.
func TestAFencedOwnerDoesNotUndoARewind(t *testing.T) {
	w := &town{}
	w.journal.Conversations = &w.conversations
	w.think = func(context.Context, []item.Item) (*model.Turn, error) { return says("done"), nil }
	r := w.gateway(t)
	req, key := w.inSession(t)
	again := *req
	if err := r.Run(t.Context(), req, &diary{}); err != nil {
		t.Fatal(err)
	}
	id := w.theRun(t).Summary.RunID
	segment := conversation.SegmentID(id, "")
	if _, _, err := conversation.Rewind(t.Context(), &w.conversations, "o", key.ID, id, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := conversation.Append(t.Context(), &w.conversations, &w.journal, "o", key.ID, id, segment, time.Hour); err != nil {
		t.Fatal(err)
	}
	if err := r.Run(t.Context(), &again, &diary{}); err != nil { // its Idempotency-Key
		t.Fatal(err)
	}
	if parts, err := conversation.Parts(t.Context(), &w.conversations, "o", key.ID); err != nil || len(parts) > 0 {
		t.Errorf("the conversation has %v, %v", parts, err)
	}
	if c, err := conversation.FindSegment(t.Context(), &w.conversations, "o", segment); c == nil || err != nil {
		t.Errorf("the segment is not stored: %v", err)
	}

	b := newSessionBench(t)
	for _, run := range []string{"run_1", "run_2", "run_3"} {
		b.ok(b.begin("s", run, time.Hour))
		b.end("s", run, run)
	}
	_, err := b.Rewind(t.Context(), session("s"), "run_3")
	b.ok(err)
	b.ok(b.Close(t.Context(), session("s"), b.since["run_3"], "run_3", b.adds("run_3", "again"), nil))
	if c := b.find("s"); len(c.Items) != 2 || c.Items[1].Text() != "run_2" {
		t.Errorf("the session has %v", c.Items)
	}
}

// A segment that a fork of its session has, too, stays with its run until the fork is deleted.
func TestASharedSegmentStaysWithItsRun(t *testing.T) {
	w, later := &town{}, forgets{}
	r := w.gatewayWith(t, func(o *run.Options) { o.LaterDeleter = later })
	who := caller.Caller{Org: &org.Org{ID: "o"}}
	save := func(id string, c journal.Conversation) {
		t.Helper()
		key := journal.ConversationKey{Kind: journal.SessionID, ID: id}
		if id == "resp_1" {
			key.Kind = journal.ResponseID
		}
		if err := w.conversations.Save(t.Context(), "o", "", c, time.Hour, key); err != nil {
			t.Fatal(err)
		}
	}
	save("resp_1", journal.Conversation{RunID: "run_1", Part: 1, Owner: "sess_1"})
	save("sess_1", journal.Conversation{Parts: []string{"resp_1"}})
	all := func(string) bool { return true }
	f, turns, err := conversation.ForkOf(t.Context(), &w.conversations, "o", "sess_1", conversation.AllTurns, all)
	if err != nil || turns != 1 {
		t.Fatalf("%d turns, %v", turns, err)
	}
	f.ID = "sess_2"
	if again, err := conversation.StoreFork(t.Context(), &w.conversations, "o", f, time.Hour); err != nil || again {
		t.Fatal(err)
	}
	drop := func(id string) {
		t.Helper()
		if was, err := r.Segments().Delete(t.Context(), who, id, "resp_1"); err != nil || was != (id == "sess_1") {
			t.Errorf("%t, %v", was, err)
		}
		if _, err := w.conversations.Delete(t.Context(), "o", "", journal.ConversationKey{Kind: journal.SessionID, ID: id}); err != nil {
			t.Fatal(err)
		}
		if err := r.Segments().Forget(t.Context(), "o", []string{"items_1", "resp_1"}); err != nil {
			t.Fatal(err)
		}
	}
	drop("sess_1")
	if c, err := conversation.FindAny(t.Context(), &w.conversations, "o", "resp_1"); c == nil || err != nil || len(later) > 0 {
		t.Errorf("the segment is %+v, %v; to be forgotten are %v", c, err, later)
	}
	drop("sess_2")
	if c, err := conversation.FindAny(t.Context(), &w.conversations, "o", "resp_1"); c != nil || err != nil || !later["run_1"] {
		t.Errorf("the segment is %+v, %v; to be forgotten are %v", c, err, later)
	}
}

// forgets are the runs that are to be deleted.
type forgets map[string]bool

func (f forgets) DeleteLater(_ context.Context, _, run string) error {
	f[run] = true
	return nil
}

// A request that edits an earlier message of a chat session begins its run there: the runs that it replaces are not in the
// history any more.
func TestARunThatReplacesOthersInASession(t *testing.T) {
	b := newSessionBench(t)
	for _, run := range []string{"run_1", "run_2", "run_3"} {
		b.ok(b.begin("s", run, time.Hour))
		b.end("s", run, run)
	}
	b.ok(b.begin("s", "run_4", time.Hour))
	edited := b.adds("run_4", "edited")
	edited.Behind = b.find("s").Parts[:1]
	b.ok(b.Close(t.Context(), session("s"), b.since["run_4"], "run_4", edited, nil))
	b.runs["run_4"] = journal.Done
	for _, gone := range []string{"run_2", "run_3"} {
		if _, err := b.Rewind(t.Context(), session("s"), gone); fault.From(err).Reason != "run_not_found" {
			t.Errorf("%s: %v", gone, err)
		}
	}
	_, err := b.Rewind(t.Context(), session("s"), "resp_4")
	b.ok(err)
	if c := b.find("s"); len(c.Items) != 1 || c.Items[0].Text() != "run_1" {
		t.Errorf("the session has %v", c.Items)
	}
}
