package run_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// waiting leaves a run of which two calls wait for approval, until a time in Unix milliseconds;
// 0 = without an end.
func (w *town) waiting(t *testing.T, until int64) {
	t.Helper()
	ask := func(key loop.CallKey) loop.Body {
		b := preparedAs(key, tool.Once).(loop.CallPrepared)
		b.Verdict = loop.Ask
		return b
	}
	waits := func(key loop.CallKey, id string) loop.Body {
		b := ask(key).(loop.CallPrepared)
		return loop.CallWaiting{Key: key, WaitID: id, On: loop.OnApproval, ExpiresAt: until, ToolDigest: b.ToolDigest, ArgsDigest: b.ArgsDigest}
	}
	w.leave(t, "run_old", "k", asked(0, 1), turned(0, "once_a", "once_b"), ask("0.0"), ask("0.1"),
		waits("0.0", "wait_a"), waits("0.1", "wait_b"), loop.Parked{ActiveMS: 10})
	w.think = func(context.Context, []item.Item) (*model.Turn, error) { return says("over"), nil }
}

// patient are conversations that store nothing for a caller who has left.
type patient struct{ journal.Conversations }

func (p patient) Save(ctx context.Context, orgID, principal string, c journal.Conversation, ttl time.Duration, keys ...journal.ConversationKey) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return p.Conversations.Save(ctx, orgID, principal, c, ttl, keys...)
}

// deserted is a journal whose caller leaves when something is appended.
type deserted struct {
	journal.Journal
	leave context.CancelFunc
}

func (l deserted) Append(ctx context.Context, lease journal.Lease, after int64, b journal.Batch) error {
	err := l.Journal.Append(ctx, lease, after, b)
	l.leave()
	return err
}

// The response to a decision is stored, also if its caller leaves as soon as it has decided.
func TestADecisionGetsItsResponseAlthoughItsCallerLeaves(t *testing.T) { // L05
	synctest.Test(t, func(t *testing.T) {
		w := &town{}
		w.waiting(t, 0)
		if err := w.conversations.Save(t.Context(), "o", "", journal.Conversation{RunID: "run_old"}, time.Hour, journal.ConversationKey{Kind: journal.ResponseID, ID: "resp_old"}); err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		r := w.gatewayWith(t, func(o *run.Options) {
			o.Journal, o.Conversations = deserted{&w.journal, leave}, patient{&w.conversations}
		})
		req := w.wants("p", "", "")
		req.Key, req.Items, req.Store = nil, nil, &run.StoreOptions{RequestJSON: json.RawMessage(`{}`), For: time.Hour}
		req.Answers = []run.Answer{{ID: "wait_a", Decision: journal.Decision{Approved: true}}}
		req.Decider = run.TrustedDecider(org.Author{Principal: "p"})
		var told diary
		if err := r.Run(ctx, req, &told); err != nil {
			t.Fatal(err)
		}
		part := told.events[0].(event.Started).Part
		c, err := conversation.FindSegment(t.Context(), &w.conversations, "o", conversation.SegmentID("run_old", part))
		if err != nil || c == nil || len(c.Waiting.Approvals) != 1 || c.Waiting.Approvals[0].ID != "wait_b" {
			t.Errorf("the response of part %q is %+v, %v", part, c, err)
		}
	})
}

// A run that waits is followed through its wait, and goes on as soon as its calls are
// decided.
func TestAWaitingRunGoesOnWhenItIsResolved(t *testing.T) { // B11
	synctest.Test(t, func(t *testing.T) {
		w := &town{}
		w.waiting(t, 0)
		r := w.gateway(t)
		if err := r.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		var whole, first diary
		var following sync.WaitGroup
		following.Go(func() {
			if err := r.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: "run_old"}, &whole); err != nil {
				t.Error(err)
			}
		})
		if err := r.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: "run_old", ToWaiting: true}, &first); err != nil {
			t.Fatal(err)
		}
		if _, ok := first.events[len(first.events)-1].(event.Waiting); !ok {
			t.Fatalf("it ends with %T", first.events[len(first.events)-1])
		}
		by := run.TrustedDecider(org.Author{Principal: "human"})
		key := func(orgID string, role org.Role) run.Decider {
			return run.KeyDecider(&org.Org{ID: orgID}, org.Principal{ID: "other", Role: role}, org.Author{Principal: "other"})
		}
		begin := time.Now()
		for _, c := range []struct {
			org, wait string
			by        run.Decider
			d         journal.Decision
			reason    string // of the refusal; "" = none
		}{
			{"o", "wait_c", by, journal.Decision{Approved: true}, "unknown"},
			{"o", "", by, journal.Decision{Approved: true}, "unknown"},
			{"bb", "wait_a", by, journal.Decision{Approved: true}, "unknown"},
			{"o", "wait_a", run.Decider{}, journal.Decision{Approved: true}, "unknown"},
			{"o", "wait_a", key("bb", org.Owner), journal.Decision{Approved: true}, "unknown"},
			{"o", "wait_a", key("o", org.Member), journal.Decision{Approved: true}, "unknown"},
			{"o", "wait_a", key("o", org.Approver), journal.Decision{Message: "too much"}, ""},
			{"o", "wait_a", by, journal.Decision{Message: "again"}, ""},
			{"o", "wait_a", by, journal.Decision{Approved: true}, "already_decided"},
			{"o", "wait_b", by, journal.Decision{Approved: true}, ""},
		} {
			_, err := r.Decisions().Decide(t.Context(), c.org, c.wait, c.d, c.by)
			switch {
			case c.reason == "unknown":
				if !errors.Is(err, org.ErrNotFound) {
					t.Errorf("%+v: %v", c, err)
				}
			case c.reason != "":
				if f := fault.From(err); f.Reason != c.reason || f.Code != fault.Conflict {
					t.Errorf("%+v: %v", c, err)
				}
			case err != nil:
				t.Errorf("%+v: %v", c, err)
			}
		}
		following.Wait()
		if took := time.Since(begin); took > time.Second/2 {
			t.Errorf("it went on after %v", took)
		}
		if _, end := whole.said(); end.Reason != event.Complete || end.ToolCalls != 1 {
			t.Errorf("it ended with %+v", end)
		}
		outcomes := map[string]event.Outcome{}
		for _, e := range whole.events {
			if done, ok := e.(event.ToolDone); ok {
				outcomes[done.Key] = done.Outcome
			}
		}
		want := map[string]event.Outcome{"0.0": event.CallDenied, "0.1": event.CallNotRun} // the tool that was approved is no longer there
		if diff := cmp.Diff(want, outcomes); diff != "" {
			t.Errorf("the calls ended otherwise (-want +got):\n%s", diff)
		}
		accounts(t, w.theRun(t))
		var again diary
		if err := eventlog.FollowStored(t.Context(), &w.journal, eventlog.Follow{Org: "o", RunID: "run_old"}, &again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(whole.encoded(t), again.encoded(t)); diff != "" {
			t.Errorf("followed live (-) and from the store (+):\n%s", diff)
		}
		if _, err := r.Decisions().Decide(t.Context(), "o", "wait_b", journal.Decision{}, by); fault.From(err).Reason != "already_decided" {
			t.Errorf("the decision of a run that has ended was changed: %v", err)
		}
	})
}

// After its end, an approval cannot be given, also if no gateway has noticed the end. // H06
func TestADecisionThatIsTooLateIsADenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{}
		w.waiting(t, time.Now().Add(time.Minute).UnixMilli())
		time.Sleep(time.Minute)
		r := w.gateway(t) // it has not begun to look for approvals that end
		_, err := r.Decisions().Decide(t.Context(), "o", "wait_a", journal.Decision{Approved: true},
			run.TrustedDecider(org.Author{Principal: "human",
				At: time.Now().UnixMilli()}))
		if f := fault.From(err); err == nil || f.Reason != "approval_expired" {
			t.Errorf("%v", err)
		}
		if a, err := w.journal.Approval(t.Context(), "o", "wait_a"); err != nil || a.Status != journal.ApprovalExpired || a.DecidedBy != "" {
			t.Errorf("%+v %v", a, err)
		}
		if err := r.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		var d diary
		if err := r.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: "run_old"}, &d); err != nil {
			t.Fatal(err)
		}
		var denied []string
		for _, e := range d.events {
			if done, ok := e.(event.ToolDone); ok && done.Outcome == event.CallDenied {
				denied = append(denied, done.Key)
			}
		}
		if len(denied) != 2 {
			t.Errorf("denied: %s", denied)
		}
		accounts(t, w.theRun(t))
	})
}

// A run is accepted without a sink, goes on without its caller, and can be followed by
// its id. The key stands for the same run.
func TestARunIsStartedAndFollowedByItsID(t *testing.T) { // L05
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: script("read_look"), tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
			"read_look": func(context.Context, tool.Call) (tool.Result, error) {
				time.Sleep(time.Second)
				return tool.Text("seen"), nil
			},
		}}
		r := w.gateway(t)
		ctx, leave := context.WithCancel(t.Context())
		id, err := r.Start(ctx, w.wants("p", "k", "h"))
		if err != nil {
			t.Fatal(err)
		}
		leave()
		if same, err := r.Start(t.Context(), w.wants("p", "k", "h")); err != nil || same != id {
			t.Errorf("the key stands for %s and %s: %v", id, same, err)
		}
		if _, err := r.Start(t.Context(), w.wants("p", "k", "other")); fault.From(err).Reason != "idempotency_key_reused" {
			t.Errorf("%v", err)
		}
		light := w.wants("p", "", "")
		light.Policy.Grade, light.Key = loop.Light, nil
		if _, err := r.Start(t.Context(), light); err == nil {
			t.Error("a light run was started without a caller")
		}
		var d diary
		if err := r.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: id}, &d); err != nil {
			t.Fatal(err)
		}
		if _, end := d.said(); end.Reason != event.Complete {
			t.Errorf("%+v", end)
		}
		for _, f := range []eventlog.Follow{{Org: "o", RunID: "run_none"}, {Org: "bb", RunID: id}} {
			if err := r.Follow(t.Context(), f, &diary{}); !errors.Is(err, org.ErrNotFound) {
				t.Errorf("%+v: %v", f, err)
			}
		}
	})
}

// A light run is followed while it is under way: what it has stored, each text at once,
// at the positions at which it stays.
func TestALightRunIsFollowed(t *testing.T) { // L05
	synctest.Test(t, func(t *testing.T) {
		w := &town{piece: 1, think: script("read_look"), tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
			"read_look": func(context.Context, tool.Call) (tool.Result, error) {
				time.Sleep(time.Minute)
				return tool.Text("seen"), nil
			},
		}}
		r := w.gateway(t)
		req := w.wants("p", "", "")
		req.Policy.Grade, req.Key = loop.Light, nil
		var caller, follower, later diary
		var all sync.WaitGroup
		all.Go(func() {
			if err := r.Run(t.Context(), req, &caller); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(30 * time.Second)
		id := w.theRun(t).Summary.RunID
		toolAt := time.Duration(0)
		begin := time.Now()
		follower.heard = func(_ event.Position, e event.Event) {
			if _, ok := e.(event.ToolStarted); ok {
				toolAt = time.Since(begin)
			}
		}
		if err := r.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: id}, &follower); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if took := time.Since(begin); toolAt > time.Second || took > 32*time.Second {
			t.Errorf("the follower heard of the tool after %v, and of the end after %v", toolAt, took)
		}
		if err := r.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: id}, &later); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(follower.encoded(t), later.encoded(t)); diff != "" {
			t.Errorf("followed live (-) and later (+):\n%s", diff)
		}
		told, _ := caller.said()
		if heard, _ := follower.said(); heard != told {
			t.Errorf("the caller got %q, the follower %q", told, heard)
		}
	})
}

// A follower of a run that this process does not perform gets an error when the gateway
// stops, and does not delay the stop.
func TestAFollowerOfAWaitingRunEndsWithTheGateway(t *testing.T) { // L05
	synctest.Test(t, func(t *testing.T) {
		w := &town{}
		w.waiting(t, 0)
		r := w.gateway(t)
		if err := r.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		followed := make(chan error, 1)
		go func() { followed <- r.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: "run_old"}, &diary{}) }()
		time.Sleep(time.Hour)
		begin := time.Now()
		r.Close(t.Context(), time.Minute)
		_ = refusal(t, <-followed, "run_handed_over")
		if took := time.Since(begin); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A client that comes back with a position gets what follows it, and what is before it is
// not read: rows of that part may even be missing.
func TestAFollowerThatComesBackReadsOnlyTheRest(t *testing.T) { // P05
	w := &town{think: script("read_look", "read_look"), tools: map[string]func(context.Context, tool.Call) (tool.Result, error){
		"read_look": func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("seen"), nil },
	}}
	r := w.gateway(t)
	var whole diary
	if err := r.Run(t.Context(), w.wants("p", "k", "h"), &whole); err != nil {
		t.Fatal(err)
	}
	all := whole.encoded(t)
	for i, after := range whole.at {
		reads := &rowReads{Archive: &w.journal}
		var rest diary
		f := eventlog.Follow{Org: "o", RunID: w.theRun(t).Summary.RunID, After: after}
		if err := eventlog.FollowStored(t.Context(), reads, f, &rest); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(all[i+1:], rest.encoded(t), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("after %v (-want +got):\n%s", after, diff)
		}
		if left := len(all) - i; reads.rows > 2+2*left {
			t.Errorf("after %v, %d rows were read for %d events", after, reads.rows, left)
		}
	}
}

// rowReads counts the rows that are asked for.
type rowReads struct {
	journal.Archive
	rows int
}

func (a *rowReads) Rows(ctx context.Context, org, runID string, refs []string, limit int) ([]json.RawMessage, error) {
	a.rows++
	return a.Archive.Rows(ctx, org, runID, refs, limit)
}

// A request that is refused because there is no memory has not started a run. // P40
func TestARequestWithoutMemoryStartsNoRun(t *testing.T) {
	for _, grade := range []loop.Grade{loop.Durable, loop.Light} {
		synctest.Test(t, func(t *testing.T) {
			w := &town{think: script("once_pay"), tools: tools{"once_pay": func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("paid"), nil }}}
			r := w.gatewayWith(t, func(o *run.Options) { o.Memory = memlimit.New(memlimit.Options{Process: 240 << 10}) })
			req := w.wants("p", "k", "h")
			req.Key, req.Policy.Grade = nil, grade
			if grade == loop.Light {
				req.WaitFor = time.Minute
				req.Policy.Approvals = []loop.ServerApproval{{Server: "s", WaitMS: 60_000, ByServer: policy.Approval{Rest: true}}}
			}
			err := r.Run(t.Context(), req, &diary{})
			synctest.Wait()
			found, _ := w.journal.Runs(t.Context(), "o", journal.Query{Limit: 1})
			if fault.From(err).Reason != "org_memory_exceeded" || len(found) != 0 || len(w.made()) != 0 {
				t.Errorf("%s: %v; runs %+v; calls %v", grade, err, found, w.made())
			}
		})
	}
}

// The items of a request, and the request to the provider that is made of them, must have
// room before anything is stored. // P40
func TestARequestWithoutRoomForItsModelCallStoresNothing(t *testing.T) {
	for _, grade := range []loop.Grade{loop.Durable, loop.Light} {
		synctest.Test(t, func(t *testing.T) {
			w := &town{think: func(context.Context, []item.Item) (*model.Turn, error) { return says("over"), nil }}
			l := memlimit.New(memlimit.Options{Run: 4 << 20})
			r := w.gatewayWith(t, func(o *run.Options) { o.Memory = l })
			ask := func(size int) error {
				req := w.wants("p", "k", "h")
				req.Key, req.Policy.Grade = nil, grade
				req.Items = []item.Item{item.NewText(item.User, strings.Repeat("x", size))}
				err := r.Run(t.Context(), req, &diary{})
				synctest.Wait()
				return err
			}
			err := ask(2 << 20)
			found, _ := w.journal.Runs(t.Context(), "o", journal.Query{Limit: 1})
			if fault.From(err).Reason != "run_memory_exceeded" || len(found) != 0 {
				t.Errorf("%s: %v; runs %+v", grade, err, found)
			}
			if err := ask(1 << 20); err != nil || l.Held() != 0 {
				t.Errorf("%s: a smaller request: %v, %d bytes are held", grade, err, l.Held())
			}
		})
	}
}

// A run that is to end decides nothing more, also while it waits for a slot to be ended.
func TestAnApprovalOfACancelledRunIsVoid(t *testing.T) { // J22
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: script("once_pay"), tools: tools{"once_pay": func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("paid"), nil }}}
		r := w.gateway(t) // without Open: nobody claims the run
		req := w.wants("p", "k", "h")
		req.Policy.Approvals = []loop.ServerApproval{{Server: "s", WaitMS: 60_000, ByServer: policy.Approval{Rest: true}}}
		var d diary
		if err := r.Run(t.Context(), req, &d); err != nil {
			t.Fatal(err)
		}
		found, err := w.journal.Approvals(t.Context(), "o", journal.ApprovalQuery{Limit: 10})
		if err != nil || len(found) != 1 || found[0].Status != journal.ApprovalWaiting {
			t.Fatalf("%+v %v", found, err)
		}
		if err := r.Cancel(t.Context(), "o", found[0].RunID, org.Author{Principal: "p"}); err != nil {
			t.Fatal(err)
		}
		a, err := r.Decisions().Decide(t.Context(), "o", found[0].ID, journal.Decision{Approved: true},
			run.TrustedDecider(org.Author{Principal: "boss"}))
		if fault.From(err).Reason != "approval_void" || a.Status != journal.ApprovalVoid || a.DecidedBy != "" {
			t.Errorf("%+v %v", a, err)
		}
	})
}

// What the conversation keeps of truncated results is there after a light run has waited.
func TestReadResultAfterALightRunHasWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		w := &town{tools: tools{"once_pay": func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("paid"), nil }}}
		w.think = func(_ context.Context, transcript []item.Item) (*model.Turn, error) {
			told = results(transcript)
			switch len(told) {
			case 0:
				return asks("once_pay"), nil
			case 1:
				turn := asks("read_result")
				turn.Calls[0].ID, turn.Calls[0].Arguments = "p9", `{"id":"abc.0.0"}`
				turn.Items = []item.Item{turn.Calls[0].Item()}
				return turn, nil
			}
			return says("done"), nil
		}
		r := w.gateway(t)
		if err := r.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		answer := item.NewText(item.Assistant, "hi")
		answer.Turn = 1
		before := journal.Conversation{RunID: "run_abc", Items: item.List{item.NewText(item.User, "hello"), answer}, Full: map[string]string{"abc.0.0": "the whole text"}}
		if err := w.conversations.Save(t.Context(), "o", "", before, time.Hour, journal.ConversationKey{Kind: journal.ResponseID, ID: "resp_abc"}); err != nil {
			t.Fatal(err)
		}
		req := w.wants("p", "k", "h")
		req.Key, req.Policy.Grade, req.Continues = nil, loop.Light, conversation.Ref{ID: "resp_abc", Member: "previous_response_id", Code: "previous_response_not_found"}
		req.Policy.Approvals = []loop.ServerApproval{{Server: "s", WaitMS: 60_000, ByServer: policy.Approval{Always: &policy.Tools{Names: []string{"once_pay"}}}}}
		if err := r.Run(t.Context(), req, &diary{}); err != nil {
			t.Fatal(err)
		}
		found, err := w.journal.Approvals(t.Context(), "o", journal.ApprovalQuery{Limit: 10})
		if err != nil || len(found) != 1 {
			t.Fatalf("%+v %v", found, err)
		}
		if _, err := r.Decisions().Decide(t.Context(), "o", found[0].ID, journal.Decision{Approved: true},
			run.TrustedDecider(org.Author{Principal: "boss"})); err != nil {
			t.Fatal(err)
		}
		if err := r.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: found[0].RunID}, &diary{}); err != nil {
			t.Fatal(err)
		}
		if len(told) != 2 || told[1] != "[bytes 0 to 14 of 14]\nthe whole text" {
			t.Errorf("the model is told %q", told)
		}
	})
}

// slowLoad is an archive that takes its time to load a run.
type slowLoad struct {
	journal.Archive
	loading chan struct{} // gets an element when a load begins
}

func (s slowLoad) Load(ctx context.Context, orgID, runID string) (*journal.Story, error) {
	s.loading <- struct{}{}
	select {
	case <-time.After(time.Second):
		return s.Archive.Load(ctx, orgID, runID)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A run that is cancelled while its next owner reads its journal ends with what is read.
func TestARunIsCancelledWhileItsNextOwnerReadsIt(t *testing.T) { // J22
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := &town{think: script("read_a"), tools: tools{"read_a": hangs}}
		w.abandon(t)
		time.Sleep(journal.LeaseTTL)
		found, err := w.journal.Runs(t.Context(), "o", journal.Query{Limit: 1})
		if err != nil || len(found) != 1 {
			t.Fatalf("%+v %v", found, err)
		}
		loading := make(chan struct{}, 10)
		next := w.gatewayWith(t, func(o *run.Options) {
			o.Log, o.Archive = slog.New(slog.NewTextHandler(&log, nil)), slowLoad{o.Archive, loading}
		})
		if err := next.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-loading
		if err := next.Cancel(t.Context(), "o", found[0].RunID, org.Author{Principal: "p"}); err != nil {
			t.Fatal(err)
		}
		var d diary
		if err := next.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: found[0].RunID}, &d); err != nil {
			t.Fatal(err)
		}
		if _, end := d.said(); end.Reason != event.Cancelled || len(loading) != 0 || strings.Contains(log.String(), "level=ERROR") {
			t.Errorf("%s after %d more loads; the log says\n%s", end.Reason, len(loading), log.String())
		}
	})
}
