package eventlog_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// detailed stores the journal of run_1 of the org o, which begins with its acceptance.
func detailed(t *testing.T, rows []journal.Row, bodies ...loop.Body) *memory.Journal {
	t.Helper()
	store := new(memory.Journal)
	accepted := loop.Accepted{
		RunID: "run_1", Org: "o", Principal: "p", Surface: "chat", Policy: loop.Policy{Grade: loop.Durable, Limits: budget.Limits{Rounds: 2, Calls: 3, ActiveMS: 1000, Tokens: 1}, AbortOnTool: true}, Model: "m",
		Targets: []loop.Target{{Provider: "up", Model: "m"}},
	}
	batch := journal.Batch{Sync: true, Rows: append(rows, journal.Row{Ref: "input", Value: item.List{item.NewText(item.User, "go")}})}
	for i, body := range append([]loop.Body{accepted, loop.InputAdded{ItemsRef: "input", By: loop.ByClient}, loop.Catalogued{}}, bodies...) {
		batch.Facts = append(batch.Facts, loop.Fact{Seq: int64(i) + 1, Epoch: 1, At: 1, Version: loop.Version, Body: body})
	}
	if err := store.Append(t.Context(), journal.Lease{Org: "o", RunID: "run_1", Epoch: 1, Owner: "x"}, 0, batch); err != nil {
		t.Fatal(err)
	}
	return store
}

// The detail of a run says what it was allowed, what it used, and what its calls did. // J21
func TestTheDetailOfARun(t *testing.T) {
	large := strings.Repeat("x", 100<<10) // no fact of a call fits into a batch
	turn := func(round int, calls ...loop.TurnCall) loop.Body {
		return loop.Turn{Round: round, Purpose: loop.PurposeTurn, Stop: model.StopCalls, Calls: calls, Usage: model.Usage{Input: 3, Output: 2, Total: 5, CachedInput: 1}}
	}
	store := detailed(t, nil,
		asked(0, 1),
		turn(0, loop.TurnCall{ProviderID: "a", Name: "look", Arguments: large, Complete: true}, loop.TurnCall{ProviderID: "b", Name: "theirs", Arguments: "{}", Complete: true},
			loop.TurnCall{ProviderID: "c", Name: "cut", Arguments: "{"}),
		loop.CallPrepared{Key: "0.0", Owner: tool.Gateway, Server: "s", Class: tool.Keyed, Verdict: loop.Run, ArgsDigest: large},
		loop.CallPrepared{Key: "0.1", Owner: tool.Client, ArgsDigest: large},
		loop.CallStarted{Key: "0.0", Attempt: 1}, loop.CallStarted{Key: "0.0", Attempt: 2},
		loop.CallDone{Key: "0.0", Attempt: 2, Outcome: loop.OK, ResultRef: "r", Micros: 1500},
	)
	account := memlimit.New(memlimit.Options{}).Open("o")
	defer account.Close()
	got, err := eventlog.Show(t.Context(), store, "o", "run_1", account)
	if err != nil {
		t.Fatal(err)
	}
	story, err := store.Load(t.Context(), "o", "run_1")
	if err != nil {
		t.Fatal(err)
	}
	want := &eventlog.Detail{
		Summary: story.Summary, Limits: budget.Limits{Rounds: 2, Calls: 3, ActiveMS: 1000, Tokens: 1},
		Usage: model.Usage{Input: 3, Output: 2, Total: 5, CachedInput: 1},
		Calls: []eventlog.DetailCall{
			{Key: "0.0", Name: "look", Server: "s", Owner: tool.Gateway, Attempts: 2, Outcome: loop.OK, Took: 1500 * time.Microsecond},
			{Key: "0.1", Name: "theirs", Owner: tool.Client},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Show (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, eventlog.DetailOf(story)); diff != "" {
		t.Errorf("Story.Detail (-want +got):\n%s", diff)
	}
	if used := account.Used(); used < 64<<10 || used > 70<<10 {
		t.Errorf("%d bytes are charged", used)
	}
	small := memlimit.New(memlimit.Options{Run: 128 << 10}).Open("o")
	defer small.Close()
	var refused *memlimit.Refused
	if _, err := eventlog.Show(t.Context(), store, "o", "run_1", small); !errors.As(err, &refused) {
		t.Errorf("with little memory: %v", err)
	}
	for _, name := range [][2]string{{"o", "run_2"}, {"p", "run_1"}, {"o", ""}} {
		if _, err := eventlog.Show(t.Context(), store, name[0], name[1], nil); !errors.Is(err, org.ErrNotFound) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Why a run ended is said in words, from pages of facts as from the whole story. // J21
func TestTheDetailSaysWhyARunEnded(t *testing.T) {
	failure := journal.Row{Ref: "failure:0.1", Value: json.RawMessage(`{"class":"target","status":418,"body":"e30=","message":"no tea","error":"e"}`)}
	for name, tt := range map[string]struct {
		rows    []journal.Row
		bodies  []loop.Body
		why     string
		failure string // its code
		model   string // the message of the failed model call
	}{
		"in progress":                    {bodies: []loop.Body{asked(0, 1)}},
		"complete":                       {bodies: []loop.Body{loop.Finished{Reason: event.Complete}}},
		"rounds":                         {bodies: []loop.Body{loop.Finished{Reason: event.MaxRounds}}, why: "The run reached its limit of 2 rounds (max_rounds)."},
		"tokens":                         {bodies: []loop.Body{loop.Finished{Reason: event.Tokens}}, why: "The run reached its limit of 1 token (max_run_tokens)."},
		"a budget":                       {bodies: []loop.Body{loop.ReserveRefused{Scope: "b"}, loop.Finished{Reason: event.Tokens}}, why: "The budget b has no room for another model call."},
		"the time":                       {bodies: []loop.Body{loop.Expired{}, loop.Finished{Reason: event.Deadline}}, why: "The run reached its time limit of 1s (deadline)."},
		"a key":                          {bodies: []loop.Body{loop.CancelRequested{By: "key_1", Cause: event.Cancelled}, loop.Finished{Reason: event.Cancelled}}, why: "The key key_1 cancelled the run.", failure: "cancelled"},
		"an operator":                    {bodies: []loop.Body{loop.CancelRequested{By: org.CommandLine, Cause: event.Cancelled}, loop.Finished{Reason: event.Cancelled}}, why: "An operator cancelled the run on the command line.", failure: "cancelled"},
		"a model":                        {rows: []journal.Row{failure}, bodies: []loop.Body{asked(0, 1), failedAt(1), loop.Finished{Reason: event.ModelError}}, why: "The provider up answered 418: no tea", failure: "model_error", model: "The provider up answered 418: no tea"},
		"a model, healed":                {rows: []journal.Row{failure}, bodies: []loop.Body{asked(0, 1), failedAt(1), asked(0, 2), loop.Finished{Reason: event.Complete}}, model: "The provider up answered 418: no tea"},
		"a damaged row":                  {rows: []journal.Row{{Ref: "failure:0.1", Value: "no failure"}}, bodies: []loop.Body{asked(0, 1), failedAt(1), loop.Finished{Reason: event.ModelError}}},
		"facts that do not fit together": {bodies: []loop.Body{loop.CallStarted{Key: "7.7", Attempt: 1}, loop.Finished{Reason: event.Blocked}}, why: "The outbound policy refused an address."},
		"a tool": {
			rows: []journal.Row{{Ref: "r", Value: item.List{item.NewResult("p", "out of paper", true)}}},
			bodies: []loop.Body{
				asked(0, 1), turned(0, "print"), loop.CallPrepared{Key: "0.0", Owner: tool.Gateway, Server: "s", Class: tool.Read, Verdict: loop.Run},
				loop.CallStarted{Key: "0.0", Attempt: 1}, loop.CallDone{Key: "0.0", Attempt: 1, Outcome: loop.Error, ResultRef: "r"}, loop.Finished{Reason: event.ToolAbort},
			},
			why: "tool print failed: out of paper", failure: "tool_failed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := detailed(t, tt.rows, tt.bodies...)
			got, err := eventlog.Show(t.Context(), store, "o", "run_1", nil)
			if err != nil {
				t.Fatal(err)
			}
			story, err := store.Load(t.Context(), "o", "run_1")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(eventlog.DetailOf(story), got); diff != "" {
				t.Errorf("the story says otherwise (-story +pages):\n%s", diff)
			}
			code, message := "", ""
			if got.Failure != nil {
				code = got.Failure.Code
			}
			if got.ModelFailure != nil {
				message = got.ModelFailure.Message
			}
			if got.Why != tt.why || code != tt.failure || message != tt.model && name != "a damaged row" {
				t.Errorf("why %q, failure %q, model %q", got.Why, code, message)
			}
		})
	}
}

// newer is an archive with a fact that this build cannot decode.
type newer struct {
	journal.Archive
	seq int64
}

// Facts implements journal.Archive.
func (a newer) Facts(ctx context.Context, orgID, runID string, after int64, limit int) ([]loop.Fact, error) {
	if after+1 == a.seq {
		return nil, &journal.Unreadable{Seq: a.seq, Kind: "prophecy", Err: loop.ErrUnknownKind}
	}
	facts, err := a.Archive.Facts(ctx, orgID, runID, after, limit)
	for i, f := range facts {
		if f.Seq == a.seq {
			return facts[:i], err
		}
	}
	return facts, err
}

// What a build cannot decode does not keep the rest from being shown.
func TestTheDetailOfAJournalThatCannotBeDecoded(t *testing.T) {
	store := detailed(t, nil, asked(0, 1), turned(0, "look"), loop.CancelRequested{By: "key_1", Cause: event.Cancelled}, loop.Finished{Reason: event.Cancelled})
	for seq := int64(1); seq <= 7; seq++ {
		got, err := eventlog.Show(t.Context(), newer{store, seq}, "o", "run_1", nil)
		if err != nil || got.Unreadable == nil || got.Unreadable.Seq != seq || got.Failure != nil || got.Summary.Reason != event.Cancelled {
			t.Errorf("fact %d: %v, %+v", seq, err, got)
			continue
		}
		if (got.Limits.Rounds == 2) != (seq != 1) || len(got.Calls) != 1 && seq != 5 || (got.Why != "") != (seq != 7) {
			t.Errorf("fact %d: %+v", seq, got)
		}
	}
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
