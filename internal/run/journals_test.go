package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// prophecy is a fact of a newer build.
type prophecy struct {
	loop.Body `json:"-"` // nil; it makes prophecy one of the closed set
}

func (prophecy) Kind() loop.Kind { return "prophecy" }

// interrupted stores the journal of a run that another process began and left.
// Rows follow from the facts.
func (w *town) interrupted(t *testing.T, bodies ...loop.Body) {
	t.Helper()
	w.leave(t, "run_old", "k", bodies...)
	time.Sleep(journal.LeaseTTL)
}

func (w *town) leave(t *testing.T, runID, key string, bodies ...loop.Body) {
	t.Helper()
	head := []loop.Body{
		loop.Accepted{
			RunID: runID, Org: "o", Principal: "p", Surface: "test", Policy: loop.Policy{Grade: loop.Durable, Parallelism: loop.Parallel, Limits: budget.Limits{Rounds: 10, Calls: 9, CallsPerTurn: 2, ActiveMS: 60_000}}, Model: "m",
			Targets: []loop.Target{{Provider: "up", Model: "m"}},
		},
		loop.InputAdded{ItemsRef: "input", By: loop.ByClient},
		loop.Catalogued{CatalogRef: "catalog"},
	}
	batch := journal.Batch{Sync: true, Opening: &journal.Opening{Key: &journal.SubmitKey{Principal: "p", Key: key, Hash: "h"}}, Rows: []journal.Row{
		{Ref: "input", Value: item.List{item.NewText(item.User, "go")}}, {Ref: "catalog", Value: sealed("once_a", "once_b", "once_c", "keyed_b")},
	}}
	for i, body := range append(head, bodies...) {
		batch.Facts = append(batch.Facts, loop.Fact{Seq: int64(i) + 1, Epoch: 1, At: time.Now().UnixMilli(), Version: loop.Version, Body: body})
		switch b := body.(type) {
		case loop.Turn:
			var said item.List
			for _, c := range b.Calls {
				said = append(said, item.NewCall(c.ProviderID, c.Name, c.Arguments))
			}
			batch.Rows = append(batch.Rows, journal.Row{Ref: b.ItemsRef, Value: said})
		case loop.CallPrepared:
			if b.ArgsRef != "gone" {
				batch.Rows = append(batch.Rows, journal.Row{Ref: b.ArgsRef, Value: json.RawMessage("{}")})
			}
		case loop.TurnFailed:
			batch.Rows = append(batch.Rows, journal.Row{Ref: b.ErrorRef, Value: map[string]string{"class": string(b.Class), "error": "down"}})
		case loop.CallDone:
			batch.Rows = append(batch.Rows, journal.Row{Ref: b.ResultRef, Value: item.List{item.NewResult("p", "old", false)}})
		}
	}
	if err := w.journal.Append(t.Context(), journal.Lease{Org: "o", RunID: runID, Epoch: 1, Owner: "gone"}, 0, batch); err != nil {
		t.Fatal(err)
	}
}

// sealed are tools that no server has any more.
func sealed(names ...string) []catalog.Sealed {
	var out []catalog.Sealed
	for _, name := range names {
		class, _, _ := strings.Cut(name, "_")
		definition := tool.Definition{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}
		out = append(out, catalog.Sealed{Definition: definition, Server: "s", Class: tool.Class(class)})
	}
	return out
}

func asked(round, attempt int) loop.Body {
	return loop.TurnStarted{Round: round, Attempt: attempt, Purpose: loop.PurposeTurn}
}

func failedAt(attempt int) loop.Body {
	return loop.TurnFailed{Attempt: attempt, Class: model.Transient, Status: 503, ErrorRef: "failure:0." + string(rune('0'+attempt))}
}

func turned(round int, names ...string) loop.Body {
	b := loop.Turn{Round: round, Purpose: loop.PurposeTurn, ItemsRef: "turn:" + string(rune('0'+round)), Stop: model.StopCalls}
	for _, name := range names {
		b.Calls = append(b.Calls, loop.TurnCall{ProviderID: "p", Name: name, Arguments: "{}", Complete: true})
	}
	return b
}

func preparedAs(key loop.CallKey, class tool.Class) loop.Body {
	return loop.CallPrepared{Key: key, Owner: tool.Gateway, Class: class, ArgsRef: "args:" + string(key), ArgsDigest: string(key), Verdict: loop.Run}
}

func started(key loop.CallKey, attempt int) loop.Body {
	return loop.CallStarted{Key: key, Attempt: attempt}
}

func ended(key loop.CallKey, attempt int) loop.Body {
	return loop.CallDone{Key: key, Attempt: attempt, Outcome: loop.OK, ResultRef: "result:" + string(key)}
}

// accounts fails the test unless every call that the journal starts is ended
// after its last start, and no call that must not be repeated starts twice.
func accounts(t *testing.T, story *journal.Story) {
	t.Helper()
	open, class := map[loop.CallKey]bool{}, map[loop.CallKey]tool.Class{}
	for _, f := range story.Facts {
		switch b := f.Body.(type) {
		case loop.CallPrepared:
			class[b.Key] = b.Class
		case loop.CallStarted:
			if b.Attempt > 1 && class[b.Key] == tool.Once && f.Epoch > 1 {
				t.Errorf("fact %d repeats call %s", f.Seq, b.Key)
			}
			open[b.Key] = true
		case loop.CallDone:
			delete(open, b.Key)
		}
	}
	if len(open) > 0 {
		t.Errorf("nothing says what became of the calls %v", open)
	}
}

// resumed starts a gateway and returns the journal of the run when it is over.
func (w *town) resumed(t *testing.T) *journal.Story {
	t.Helper()
	w.restarted(t)
	story, err := w.journal.Load(t.Context(), "o", "run_old")
	if err != nil {
		t.Fatal(err)
	}
	return story
}

// restarted returns a gateway that has had time to finish what it found.
func (w *town) restarted(t *testing.T) *run.Runner {
	t.Helper()
	w.think = func(context.Context, []item.Item) (*model.Turn, error) { return says("over"), nil }
	r := w.gateway(t)
	if err := r.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	time.Sleep(30 * time.Second)
	return r
}

// A build with other limits, or with another order of its rules, has
// written what the present rules would not write. The run goes on. // C07 P01
func TestARunThatOtherRulesBeganIsNotLost(t *testing.T) {
	turn := []loop.Body{asked(0, 1), turned(0, "once_a", "once_b", "once_c")}
	prepared := slices.Concat(turn, []loop.Body{preparedAs("0.0", tool.Once), preparedAs("0.1", tool.Once), preparedAs("0.2", tool.Once)})
	for name, tt := range map[string]struct {
		bodies []loop.Body
		want   event.Reason
	}{
		"more attempts at a model call":   {[]loop.Body{asked(0, 1), failedAt(1), asked(0, 2), failedAt(2), asked(0, 3), failedAt(3), asked(0, 4)}, event.Complete},
		"more calls in a turn":            {slices.Concat(prepared, []loop.Body{started("0.0", 1), started("0.1", 1), started("0.2", 1)}), event.Complete},
		"calls started before all ready":  {slices.Concat(turn, []loop.Body{preparedAs("0.0", tool.Once), started("0.0", 1), ended("0.0", 1), preparedAs("0.1", tool.Once)}), event.Complete},
		"calls prepared in another order": {slices.Concat(turn, []loop.Body{preparedAs("0.2", tool.Once), preparedAs("0.1", tool.Once), preparedAs("0.0", tool.Once), started("0.1", 1)}), event.Complete},
		"another reason to answer a call": {slices.Concat(prepared, []loop.Body{loop.CallDone{Key: "0.0", Outcome: loop.NotRun, ResultRef: "result:0.0"}, started("0.1", 1)}), event.Complete},
		"a model call after its last round": {[]loop.Body{asked(0, 1), turned(0, "once_a"), preparedAs("0.0", tool.Once), started("0.0", 1), ended("0.0", 1),
			loop.Resumed{}, loop.Resumed{}, asked(1, 1)}, event.Complete},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &town{}
				w.interrupted(t, tt.bodies...)
				story := w.resumed(t)
				if story.Summary.Reason != tt.want {
					end, _ := story.Facts[len(story.Facts)-1].Body.(loop.Finished)
					t.Errorf("the run ended: %s, %s, want %s", story.Summary.Reason, end.Detail, tt.want)
				}
				accounts(t, story)
				if n := len(w.made()); n != 0 {
					t.Errorf("%d calls were made", n)
				}
			})
		})
	}
}

// What cannot be gone on with is given up, and says what became of its
// calls before it ends. // P01
func TestARunThatIsGivenUpAccountsForItsCalls(t *testing.T) {
	prepared := []loop.Body{asked(0, 1), turned(0, "once_a", "keyed_b"), preparedAs("0.0", tool.Once), preparedAs("0.1", tool.Keyed)}
	for name, tt := range map[string]struct {
		bodies []loop.Body
		want   string
		open   int
	}{
		"a once-call is repeated":       {slices.Concat(prepared, []loop.Body{started("0.0", 1), started("0.1", 1), started("0.0", 2)}), "must not be repeated", 2},
		"a call that is done is made":   {slices.Concat(prepared, []loop.Body{started("0.0", 1), ended("0.0", 1), started("0.1", 1), started("0.0", 2)}), "is done", 2},
		"a call of no turn":             {slices.Concat(prepared, []loop.Body{started("0.1", 1), started("4.4", 1)}), "belongs to no turn", 2},
		"a turn over calls in flight":   {slices.Concat(prepared, []loop.Body{started("0.0", 1), asked(1, 1), turned(1, "once_a"), preparedAs("1.0", tool.Once), started("1.0", 1)}), "has started and is not done", 2},
		"a second turn of the same key": {slices.Concat(prepared, []loop.Body{asked(0, 1), loop.Turn{Purpose: loop.PurposeTurn, ItemsRef: "again"}}), "of round 0, want 1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &town{}
				w.interrupted(t, tt.bodies...)
				story := w.resumed(t)
				last := len(story.Facts) - 1
				end, _ := story.Facts[last].Body.(loop.Finished)
				if end.Reason != event.Lost || end.Code != "journal_refused" || !strings.Contains(end.Detail, tt.want) {
					t.Errorf("%+v does not say %q", end, tt.want)
				}
				accounts(t, story)
				unknown := 0
				for _, f := range story.Facts {
					b, ok := f.Body.(loop.CallDone)
					if ok && b.Outcome == loop.Unknown {
						unknown++
					} else if ok && f.Epoch > 1 && (b.Outcome != loop.NotRun || b.Attempt != 0) {
						t.Errorf("fact %d is %+v", f.Seq, f.Body)
					}
				}
				if unknown != tt.open {
					t.Errorf("%d calls are unknown, want %d", unknown, tt.open)
				}
				var d diary
				if err := w.gateway(t).Run(t.Context(), w.wants("p", "k", "h"), &d); err != nil {
					t.Fatal(err)
				}
				if _, end := d.said(); end.Reason != event.Lost || end.Failure == nil || end.Failure.Code != "run_lost" || len(w.made()) != 0 {
					t.Errorf("its client is told %+v, %d calls", end, len(w.made()))
				}
			})
		})
	}
}

// A journal that cannot be decoded is set aside once, with one line in the
// log, and is not claimed again, also not by the next process of that build. Its
// client is told, and a cancel ends it after accounting for its calls. // C07
func TestARunThatCannotBeDecodedIsSetAsideOnce(t *testing.T) {
	turn := []loop.Body{asked(0, 1), turned(0, "once_a", "keyed_b"), preparedAs("0.0", tool.Once), preparedAs("0.1", tool.Keyed), started("0.0", 1)}
	for name, tt := range map[string]struct {
		bodies []loop.Body
		want   string
	}{
		"a fact of a newer build":           {slices.Concat(turn, []loop.Body{prophecy{}, started("0.1", 1)}), `fact 9 cannot be decoded: unknown fact kind: "prophecy"`},
		"a row that is damaged":             {slices.Concat(turn, []loop.Body{loop.InputAdded{ItemsRef: "hurt", By: loop.ByClient}, started("0.1", 1)}), "row hurt cannot be decoded"},
		"the arguments of a call are gone":  {slices.Concat(turn[:3], []loop.Body{loop.CallPrepared{Key: "0.1", Owner: tool.Gateway, Class: tool.Keyed, Verdict: loop.Run, ArgsRef: "gone"}, started("0.0", 1), started("0.1", 1)}), "row gone cannot be decoded"},
		"the first thing that the run said": {[]loop.Body{prophecy{}}, "fact 4 cannot be decoded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				w := &town{log: slog.New(slog.NewTextHandler(&log, nil))}
				w.interrupted(t, tt.bodies...)
				w.restarted(t)
				r := w.restarted(t)
				synctest.Wait() // for what still writes to the log
				if n := strings.Count(log.String(), "\n"); n != 1+strings.Count(log.String(), "run goes on") || !strings.Contains(log.String(), "run set aside") {
					t.Errorf("%d lines in the log:\n%s", n, &log)
				}
				runs, err := w.journal.Runs(t.Context(), "o", journal.Query{Limit: 10})
				if err != nil || runs[0].Status != journal.IsAside || !strings.Contains(runs[0].Aside.Reason, tt.want) {
					t.Fatalf("%+v, %v; want one that is set aside because %q", runs, err, tt.want)
				}
				told := refusal(t, r.Run(t.Context(), w.wants("p", "k", "h"), &diary{}), "journal_unreadable")
				if told.Code != fault.Internal || !strings.Contains(told.Message, tt.want) {
					t.Errorf("its client is told %+v", told)
				}
				if err := r.Cancel(t.Context(), "o", "run_old", org.Author{Principal: "admin"}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				if runs, err = w.journal.Runs(t.Context(), "o", journal.Query{Limit: 10}); err != nil || runs[0].Reason != event.Cancelled {
					t.Fatalf("%+v, %v; want one that is cancelled", runs, err)
				}
				story, err := w.journal.Load(t.Context(), "o", "run_old")
				var bad *journal.Unreadable
				if errors.As(err, &bad) {
					story = bad.Story
				}
				accounts(t, story)
				var d diary
				if err := r.Run(t.Context(), w.wants("p", "k", "h"), &d); err != nil {
					t.Fatal(err)
				}
				if _, end := d.said(); end.Reason != event.Cancelled || len(w.made()) != 0 {
					t.Errorf("its client is told %+v, %d calls", end, len(w.made()))
				}
			})
		})
	}
}

// unread are conversations of which one cannot be decoded, after it was found a few times.
type unread struct {
	journal.Conversations
	key   journal.ConversationKey
	finds int
	then  func() // called before it is not decoded; nil = nothing is
}

func (u *unread) Find(ctx context.Context, orgID, principal string, key journal.ConversationKey) (*journal.Conversation, error) {
	if key != u.key {
		return u.Conversations.Find(ctx, orgID, principal, key)
	}
	if u.finds--; u.finds >= 0 {
		return u.Conversations.Find(ctx, orgID, principal, key)
	}
	if then := u.then; then != nil {
		u.then = nil
		then()
	}
	return journal.DecodeConversation(key, []byte(`{"v":3}`))
}

// inSession returns a request that continues a conversation, which it stores.
func (w *town) inSession(t *testing.T) (*run.Request, journal.ConversationKey) {
	t.Helper()
	key := journal.ConversationKey{Kind: journal.SessionID, ID: "conv_1"}
	if err := w.conversations.Save(t.Context(), "o", "", journal.Conversation{}, 24*time.Hour, key); err != nil {
		t.Fatal(err)
	}
	req := w.wants("p", "k", "h")
	req.Continues, req.Store = conversation.Ref{ID: key.ID, Named: true, Member: "conversation", Code: "conversation_not_found"}, &run.StoreOptions{RequestJSON: json.RawMessage(`{}`), For: time.Hour}
	return req, key
}

// A cancel that comes while a run is being set aside ends it.
func TestACancelThatWasAcknowledgedEndsARunThatCannotBeDecoded(t *testing.T) { // P17
	synctest.Test(t, func(t *testing.T) {
		w := &town{}
		req, key := w.inSession(t)
		w.think = func(context.Context, []item.Item) (*model.Turn, error) { return says("over"), nil }
		kept := &unread{Conversations: &w.conversations, key: key, finds: 1}
		r := w.gatewayWith(t, func(o *run.Options) { o.Conversations = kept })
		kept.then = func() {
			if err := r.Cancel(t.Context(), "o", w.theRun(t).Summary.RunID, org.Author{Principal: "admin"}); err != nil {
				t.Error(err)
			}
		}
		if err := r.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = refusal(t, r.Run(t.Context(), req, &diary{}), "run_handed_over")
		time.Sleep(5 * time.Second)
		if s := w.theRun(t).Summary; s.Reason != event.Cancelled {
			t.Errorf("the run is %+v", s)
		}
	})
}

// A run to which a newer build writes while it is performed is set aside, and the store is as
// well as before.
func TestARunThatLearnsOfAnUnknownFactIsSetAside(t *testing.T) { // C07
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		w := &town{log: slog.New(slog.NewTextHandler(&log, nil))}
		w.think = func(context.Context, []item.Item) (*model.Turn, error) {
			s := w.theRun(t).Summary
			head, err := w.journal.Head(t.Context(), "o", s.RunID)
			if err != nil {
				t.Fatal(err)
			}
			fact := loop.Fact{Seq: head.Seq + 1, At: time.Now().UnixMilli(), Version: loop.Version, Body: prophecy{}}
			if err := w.journal.Append(t.Context(), journal.Lease{Org: "o", RunID: s.RunID}, head.Seq, journal.Batch{Sync: true, Facts: []loop.Fact{fact}}); err != nil {
				t.Error(err)
			}
			return says("over"), nil
		}
		r := w.gateway(t)
		if err := r.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = refusal(t, r.Run(t.Context(), w.wants("p", "k", "h"), &diary{}), "run_handed_over")
		time.Sleep(5 * time.Second)
		runs, err := w.journal.Runs(t.Context(), "o", journal.Query{Limit: 10})
		if err != nil || runs[0].Status != journal.IsAside || !strings.Contains(runs[0].Aside.Reason, "prophecy") {
			t.Errorf("%+v, %v", runs, err)
		}
		synctest.Wait()
		if strings.Contains(log.String(), "the store cannot be written") {
			t.Error(log.String())
		}
	})
}

// An owner whose lease another one has does not say what becomes of the run.
func TestAFencedOwnerSetsNothingAside(t *testing.T) { // R13
	synctest.Test(t, func(t *testing.T) {
		w := &town{}
		req, key := w.inSession(t)
		w.think = func(context.Context, []item.Item) (*model.Turn, error) { return says("over"), nil }
		kept := &unread{Conversations: &w.conversations, key: key, finds: 1, then: func() {
			time.Sleep(journal.LeaseTTL + time.Second) // it renews no lease
			if err := w.gateway(t).Open(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Second)
		}}
		r := w.gatewayWith(t, func(o *run.Options) { o.Conversations = kept })
		_ = refusal(t, r.Run(t.Context(), req, &diary{}), "run_handed_over")
		if s := w.theRun(t).Summary; s.Reason != event.Complete {
			t.Errorf("the run is %+v", s)
		}
	})
}

// Nobody could go on with a light run, so it ends without its response in the conversation.
func TestALightRunEndsAlthoughItsConversationCannotBeDecoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		w := &town{log: slog.New(slog.NewTextHandler(&log, nil))}
		req, key := w.inSession(t)
		req.Key, req.Policy.Grade = nil, loop.Light
		w.think = func(context.Context, []item.Item) (*model.Turn, error) { return says("over"), nil }
		r := w.gatewayWith(t, func(o *run.Options) { o.Conversations = &unread{Conversations: &w.conversations, key: key, finds: 1} })
		var d diary
		if err := r.Run(t.Context(), req, &d); err != nil {
			t.Fatal(err)
		}
		if text, end := d.said(); text != "over" || end.Reason != event.Complete || !strings.Contains(log.String(), "what a run has said is not added to its conversation") {
			t.Errorf("%q %+v, and the log is\n%s", text, end, &log)
		}
	})
}

// unreadSession are conversations of which one is unread, and which know their runs.
type unreadSession struct {
	*memory.Conversations
	unread *unread
}

func (u unreadSession) Find(ctx context.Context, orgID, principal string, key journal.ConversationKey) (*journal.Conversation, error) {
	return u.unread.Find(ctx, orgID, principal, key)
}

// A run ends without its answer in a chat session that cannot be decoded any more, and the store is as well as before.
func TestARunEndsAlthoughItsSessionCannotBeDecoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		w := &town{log: slog.New(slog.NewTextHandler(&log, nil))}
		req := w.wants("p", "k", "h")
		req.Continues = conversation.Ref{ID: "s", Resent: true, TTL: time.Hour, Member: "session_id"}
		key := journal.ConversationKey{Kind: journal.SessionID, ID: conversation.SessionName{Org: "o", Principal: "p", ID: "s"}.Stored()}
		w.think = func(context.Context, []item.Item) (*model.Turn, error) { return says("over"), nil }
		kept := unreadSession{&w.conversations, &unread{Conversations: &w.conversations, key: key, finds: 1}}
		r := w.gatewayWith(t, func(o *run.Options) { o.Conversations = kept })
		var d diary
		if err := r.Run(t.Context(), req, &d); err != nil {
			t.Fatal(err)
		}
		const want = "what a run has said is not added to its session"
		text, end := d.said()
		failed := strings.Contains(log.String(), "the store cannot be written")
		if text != "over" || end.Reason != event.Complete || !strings.Contains(log.String(), want) || failed {
			t.Errorf("%q %+v, and the log is\n%s", text, end, &log)
		}
		if c, err := w.conversations.Find(t.Context(), "o", "", key); err != nil || c == nil || len(c.Parts) > 0 {
			t.Errorf("the session is %+v, %v", c, err)
		}
	})
}

// fullOnce are conversations whose store takes no part at first.
type fullOnce struct {
	*memory.Conversations
	was bool
}

func (f *fullOnce) AddPart(
	ctx context.Context, orgID, id string, part journal.Saved, c journal.Conversation, ttl time.Duration, dropped []journal.ConversationKey,
) error {
	if !f.was {
		f.was = true
		return errors.New("disk full")
	}
	return f.Conversations.AddPart(ctx, orgID, id, part, c, ttl, dropped)
}

// A run whose session cannot be stored does not end before it is.
func TestARunEndsWhenItsSessionIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{}
		req := w.wants("p", "k", "h")
		req.Continues = conversation.Ref{ID: "s", Resent: true, TTL: time.Hour, Member: "session_id"}
		w.think = func(context.Context, []item.Item) (*model.Turn, error) { return says("over"), nil }
		r := w.opened(t, func(o *run.Options) { o.Conversations = &fullOnce{Conversations: &w.conversations} })
		var refused *fault.Error
		if err := r.Run(t.Context(), req, &diary{}); !errors.As(err, &refused) || refused.Code != fault.Unavailable {
			t.Errorf("%v", err)
		}
		if s := w.theRun(t).Summary; s.Status == journal.Done {
			t.Errorf("the run has ended: %+v", s)
		}
		time.Sleep(10 * time.Second)
		n := conversation.SessionName{Org: "o", Principal: "p", ID: "s"}
		if c, err := r.Sessions().Find(t.Context(), n); err != nil || len(c.Parts) != 1 || w.theRun(t).Summary.Reason != event.Complete {
			t.Errorf("the session is %+v, %v", c, err)
		}
	})
}

// An approval ends when its time is over, however much of the run has to be read for it.
func TestAnApprovalOfALargeRunExpires(t *testing.T) { // P40
	synctest.Test(t, func(t *testing.T) {
		w := &town{}
		w.leave(t, "run_old", "k", largeWaiting(time.Now().Add(time.Second).UnixMilli())...)
		w.think = func(context.Context, []item.Item) (*model.Turn, error) { return says("over"), nil }
		r := w.gatewayWith(t, func(o *run.Options) { o.Memory = memlimit.New(memlimit.Options{Run: 1 << 19}) })
		if err := r.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if a, err := w.journal.Approval(t.Context(), "o", "wait_a"); err != nil || a.Status != journal.ApprovalExpired {
			t.Errorf("the approval is %+v, %v", a, err)
		}
	})
}

// largeWaiting is what a run has done that waits for the approval of a call with large arguments.
func largeWaiting(expires int64) []loop.Body {
	turn := turned(0, "once_a").(loop.Turn)
	turn.Calls[0].Arguments = `{"x":"` + strings.Repeat("x", 1<<20) + `"}`
	call := preparedAs("0.0", tool.Once).(loop.CallPrepared)
	call.Verdict = loop.Ask
	return []loop.Body{asked(0, 1), turn, call, loop.CallWaiting{Key: "0.0", WaitID: "wait_a", On: loop.OnApproval, ExpiresAt: expires}, loop.Parked{ActiveMS: 10}}
}

// A run that cannot be added to its conversation, because another build has stored that
// since, is set aside as one whose journal cannot be decoded. The store is as well as before. // C07
func TestARunWhoseConversationCannotBeDecodedIsSetAsideOnce(t *testing.T) {
	for name, after := range map[string]struct {
		rest func(*testing.T, *town, *run.Runner) // of the life of the run
		want event.Reason
		told int // responses that the conversation has in the end
	}{
		"and a build that can decode it ends the run": {func(t *testing.T, w *town, _ *run.Runner) {
			w.build = "2"
			w.restarted(t)
		}, event.Complete, 1},
		"and a cancel ends the run": {func(t *testing.T, w *town, r *run.Runner) {
			if err := r.Cancel(t.Context(), "o", w.theRun(t).Summary.RunID, org.Author{Principal: "admin"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}, event.Cancelled, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				w := &town{build: "1", think: script("read_a"), tools: tools{"read_a": hangs}, log: slog.New(slog.NewTextHandler(&log, nil))}
				req, key := w.inSession(t)
				leaving, leave := context.WithTimeout(t.Context(), time.Second)
				defer leave()
				_ = w.gateway(t).Run(leaving, req, &diary{}) // it renews no lease
				w.offer("read_a", func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("done"), nil })
				old := w.gatewayWith(t, func(o *run.Options) { o.Conversations = &unread{Conversations: &w.conversations, key: key} })
				if err := old.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				runs, err := w.journal.Runs(t.Context(), "o", journal.Query{Limit: 10})
				if err != nil || len(runs) != 1 || runs[0].Status != journal.IsAside || !strings.Contains(runs[0].Aside.Reason, "conversation conv_1 cannot be decoded") {
					t.Fatalf("%+v, %v; want one that is set aside", runs, err)
				}
				resumed := 0
				for _, f := range w.theRun(t).Facts {
					if f.Body.Kind() == loop.KindResumed {
						resumed++
					}
				}
				synctest.Wait() // for what still writes to the log
				if resumed != 1 || strings.Contains(log.String(), "the store cannot be written") {
					t.Errorf("resumed %d times, and the log is\n%s", resumed, &log)
				}
				_ = refusal(t, old.Run(t.Context(), w.wants("p", "k", "h"), &diary{}), "journal_unreadable")
				again := *req
				again.Key = &journal.SubmitKey{Principal: "p", Key: "another", Hash: "h"}
				_ = refusal(t, old.Run(t.Context(), &again, &diary{}), "conversation_unreadable")

				after.rest(t, w, old)
				c, err := w.conversations.Find(t.Context(), "o", "", key)
				if err != nil || len(c.Parts) != after.told {
					t.Errorf("the conversation has %+v, %v; want %d responses", c, err, after.told)
				}
				if s := w.theRun(t).Summary; s.Reason != after.want {
					t.Errorf("the run is %+v, want %s", s, after.want)
				}
			})
		})
	}
}

// A restored run is ended as lost also if its journal cannot be decoded, and none of
// its calls is made.
func TestARunThatIsSetAsideCanBeLost(t *testing.T) { // P01
	synctest.Test(t, func(t *testing.T) {
		w := &town{}
		w.interrupted(t, asked(0, 1), turned(0, "once_a", "keyed_b"), preparedAs("0.0", tool.Once), preparedAs("0.1", tool.Keyed), started("0.0", 1), prophecy{})
		w.restarted(t)
		r := w.restarted(t)
		if err := r.Lose(t.Context(), "o", "run_old", "turnpike restore"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		runs, err := w.journal.Runs(t.Context(), "o", journal.Query{Limit: 10})
		if err != nil || runs[0].Reason != event.Lost {
			t.Fatalf("%+v, %v; want one that is lost", runs, err)
		}
		story, err := w.journal.Load(t.Context(), "o", "run_old")
		var bad *journal.Unreadable
		if errors.As(err, &bad) {
			story = bad.Story
		}
		accounts(t, story)
		var d diary
		if err := r.Run(t.Context(), w.wants("p", "k", "h"), &d); err != nil {
			t.Fatal(err)
		}
		if _, end := d.said(); end.Reason != event.Lost || end.Failure == nil || end.Failure.Code != "run_lost" || len(w.made()) != 0 {
			t.Errorf("its client is told %+v, %d calls", end, len(w.made()))
		}
		_ = refusal(t, r.Lose(t.Context(), "o", "run_old", "turnpike restore"), "run_finished")
	})
}

// 150 such runs are looked at once each. // C07
func TestManyRunsThatCannotBeDecodedAreQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		w := &town{log: slog.New(slog.NewTextHandler(&log, nil))}
		const n = 150
		for i := range n {
			w.leave(t, fmt.Sprint("run_", i), fmt.Sprint(i), asked(0, 1), prophecy{})
		}
		time.Sleep(journal.LeaseTTL)
		w.restarted(t)
		w.restarted(t)
		synctest.Wait() // for what still writes to the log
		if lines := strings.Count(log.String(), "\n"); lines != n || w.loads() != n {
			t.Errorf("%d lines in the log and %d journals read, want %d", lines, w.loads(), n)
		}
	})
}

// A build that may be able to decode the journal tries once. // C07
func TestARunThatWasSetAsideIsTriedByABuildThatKnowsMore(t *testing.T) {
	for _, tt := range []struct {
		aside journal.Aside
		build string
		want  bool
	}{
		{journal.Aside{Build: "b1", Kind: "prophecy", Version: loop.Version}, "b2", false},
		{journal.Aside{Build: "b1", Kind: loop.KindTurn, Version: loop.Version + 1}, "b2", false},
		{journal.Aside{Build: "b1", Kind: loop.KindTurn, Version: loop.Version}, "b1", true},
		{journal.Aside{Build: "b1"}, "b1", false},
		{journal.Aside{Build: "b1"}, "b2", true},
	} {
		if got := tt.aside.Again(tt.build); got != tt.want {
			t.Errorf("%+v by %s: %v", tt.aside, tt.build, got)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		w := &town{log: slog.New(slog.NewTextHandler(&log, nil)), build: "b1"}
		w.interrupted(t, asked(0, 1), loop.InputAdded{ItemsRef: "hurt", By: loop.ByClient})
		w.restarted(t).Close(t.Context(), 0) // or else it may claim what the next build tries again
		w.build = "b2"
		w.restarted(t)
		w.restarted(t)
		synctest.Wait() // for what still writes to the log
		if n := strings.Count(log.String(), "run set aside"); n != 2 || strings.Count(log.String(), "tried again") != 1 {
			t.Errorf("%d tries by two builds:\n%s", n, &log)
		}
	})
}

// The error body of a provider reaches a client unchanged only where both speak one
// dialect, so the dialect is stored with it.
func TestAStoredFailureKeepsTheDialectOfItsBody(t *testing.T) {
	for name, tt := range map[string]struct{ row, dialect string }{
		"the row names it":             {`{"class":"invalid","status":400,"body":"e30=","dialect":"anthropic","error":"e"}`, "anthropic"},
		"an unknown one stays unknown": {`{"class":"invalid","status":400,"body":"e30=","dialect":"","error":"e"}`, ""},
		"no body, no dialect":          {`{"class":"transient","status":503,"error":"e"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			story := &journal.Story{
				Summary: journal.Summary{Reason: event.ModelError},
				Rows:    map[string]json.RawMessage{"failure:0.1": json.RawMessage(tt.row)},
			}
			for i, body := range []loop.Body{
				loop.Accepted{RunID: "r", Targets: []loop.Target{{Provider: "up", Model: "m"}}, Policy: loop.Policy{Limits: budget.Limits{Rounds: 1}}},
				loop.InputAdded{ItemsRef: "input", By: loop.ByClient}, loop.Catalogued{}, asked(0, 1), failedAt(1), loop.Finished{Reason: event.ModelError},
			} {
				story.Facts = append(story.Facts, loop.Fact{Seq: int64(i) + 1, Epoch: 1, Version: loop.Version, Body: body})
			}
			failure := eventlog.DetailOf(story).Failure
			if failure == nil || failure.Upstream == nil || failure.Upstream.Dialect != tt.dialect {
				t.Errorf("%+v", failure)
			}
		})
	}
}

// A repeat of a request that an adapter has refused is told the same place, also after
// a restart.
func TestAStoredFailureKeepsThePlaceThatWasRefused(t *testing.T) { // P22
	const row = `{"class":"target","param":"messages[0].content[1].image_url","message":"m","error":"e"}`
	refused := loop.TurnFailed{Attempt: 1, Class: model.Target, ErrorRef: "failure:0.1", Param: "messages[0].content[1].image_url"}
	for name, tt := range map[string]struct {
		reason event.Reason
		before []loop.Body
		want   event.Failure
	}{
		"a value": {event.ModelError, nil, event.Failure{Code: "unsupported_value", Message: "m", Param: "messages[0].content[1].image_url"}},
		"a URL that the outbound policy refuses": {event.Blocked, []loop.Body{loop.Blocked{Reason: "private", Address: "10.0.0.1", Setting: "s"}},
			event.Failure{Code: "outbound_ssrf_blocked", Message: "ssrf_blocked:private", Address: "10.0.0.1", Setting: "s", Param: "messages[0].content[1].image_url"}},
	} {
		t.Run(name, func(t *testing.T) {
			story := &journal.Story{Summary: journal.Summary{Reason: tt.reason}, Rows: map[string]json.RawMessage{"failure:0.1": json.RawMessage(row)}}
			facts := []loop.Body{
				loop.Accepted{RunID: "r", Targets: []loop.Target{{Provider: "up", Model: "m"}}, Policy: loop.Policy{Limits: budget.Limits{Rounds: 1}}},
				loop.InputAdded{ItemsRef: "input", By: loop.ByClient}, loop.Catalogued{}, asked(0, 1), refused,
			}
			for i, body := range append(append(facts, tt.before...), loop.Finished{Reason: tt.reason}) {
				story.Facts = append(story.Facts, loop.Fact{Seq: int64(i) + 1, Epoch: 1, Version: loop.Version, Body: body})
			}
			if diff := cmp.Diff(&tt.want, eventlog.DetailOf(story).Failure); diff != "" {
				t.Error(diff)
			}
		})
	}
}
