package loop

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

func keyed(b *CallPrepared) { b.Class = tool.Keyed }

// Facts that no release writes are rejected. // P01
func TestCheckSafetyRejects(t *testing.T) {
	again := CallStarted{Key: "0.0", Attempt: 2}
	for name, tt := range map[string]struct {
		facts []Body
		next  Fact
		want  string
	}{
		"a gap":                                {begin(), Fact{Seq: 4, Body: asked(0, 1)}, "follows fact 2"},
		"a repeated fact":                      {begin(), Fact{Seq: 2, Body: catalogued()}, "follows fact 2"},
		"no body":                              {begin(), Fact{Seq: 3}, "no body"},
		"no accepted fact":                     {nil, Fact{Seq: 1, Body: catalogued()}, "not accepted"},
		"two accepted facts":                   {begin(), Fact{Seq: 3, Body: accepted()}, "already accepted"},
		"two finished facts":                   {with(begin(), Finished{Reason: event.Lost}), Fact{Seq: 4, Body: Finished{Reason: event.Lost}}, "has finished"},
		"anything after the end":               {with(begin(), Finished{Reason: event.Lost}), Fact{Seq: 4, Body: Resumed{}}, "has finished"},
		"a start without a turn":               {begin(), Fact{Seq: 3, Body: started("0.0")}, "belongs to no turn"},
		"a start of a call of an earlier turn": {with(oneTurn("a"), prepared("0.0"), started("0.0"), done("0.0"), asked(1, 1), turn(1, model.StopCalls, "a")), Fact{Seq: 10, Body: again}, "belongs to no turn"},
		"a start of an unprepared call":        {oneTurn("a"), Fact{Seq: 5, Body: started("0.0")}, "not prepared"},
		"a once-call again":                    {with(oneTurn("a"), prepared("0.0"), started("0.0")), Fact{Seq: 7, Body: again}, "must not be repeated"},
		"a call that is done again":            {with(oneTurn("a"), prepared("0.0", keyed), started("0.0"), done("0.0")), Fact{Seq: 8, Body: again}, "is done"},
		"a skipped attempt":                    {with(oneTurn("a"), prepared("0.0", keyed), started("0.0")), Fact{Seq: 7, Body: CallStarted{Key: "0.0", Attempt: 3}}, "follows attempt 1"},
		"a result without a turn":              {begin(), Fact{Seq: 3, Body: done("0.0")}, "belongs to no turn"},
		"a result of an attempt not made":      {with(oneTurn("a"), prepared("0.0")), Fact{Seq: 6, Body: done("0.0")}, "not started"},
		"a second result":                      {with(oneTurn("a"), prepared("0.0"), started("0.0"), done("0.0")), Fact{Seq: 8, Body: done("0.0")}, "is done"},
		"a turn that replaces calls in flight": {with(oneTurn("a"), prepared("0.0"), started("0.0"), asked(1, 1)), Fact{Seq: 8, Body: turn(1, model.StopEnd)}, "started and is not done"},
		"a turn whose calls have earlier keys": {with(oneTurn("a"), prepared("0.0"), started("0.0"), done("0.0"), asked(1, 1)), Fact{Seq: 9, Body: turn(0, model.StopCalls, "a")}, "of round 0, want 1"},
		"an approval of a call of no turn":     {begin(), Fact{Seq: 3, Body: waiting("0.0", "w")}, "belongs to no turn"},
		"a preparation of a call of no turn":   {begin(), Fact{Seq: 3, Body: prepared("0.0")}, "belongs to no turn"},
		"a preparation of an incomplete call":  {oneTurn("a…"), Fact{Seq: 5, Body: prepared("0.0")}, "belongs to no turn"},
		"a result of an earlier attempt":       {with(oneTurn("a"), prepared("0.0", keyed), started("0.0"), again), Fact{Seq: 8, Body: done("0.0")}, "not started"},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckSafety(Fold(facts(tt.facts...)), tt.next)
			if !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v does not contain %q", err, tt.want)
			}
		})
	}
}

// A field that is missing from a stored Accepted means the constant of the first
// builds. The expected values must never change. // C07
func TestMissingRulesHaveFixedDefaults(t *testing.T) {
	const old = `{"run_id":"r","grade":"durable","targets":[{"provider":"p","model":"m"}],"limits":{"rounds":3,"calls":9,"calls_per_turn":4,"active_ms":60000},"guard":{"mode":"nudge"}}`
	body, err := Decode(Version, KindAccepted, []byte(old))
	if err != nil {
		t.Fatal(err)
	}
	a := Apply(State{}, Fact{Seq: 1, Body: body}).Accepted
	want := Rules{Attempts: 3, DeadOwners: 5, StuckMS: 300_000, DeadOwnersPerCall: 5, CallsPerServer: 10, RetryWaitMS: 5000, Estimate: budget.Estimate{BytesPerToken: 3, Output: 8192, MinOutput: 16}}
	if a.Rules != want {
		t.Errorf("%+v", a.Rules)
	}
	if want := (policy.Guard{Mode: policy.Nudge, Threshold: 3, Window: 64, Failures: 5, Alternations: 2, SameReads: 2, SameWrites: 4}); a.Guard != want {
		t.Errorf("%+v", a.Guard)
	}
}

// A new Accepted has every constant, so a build with other constants reads it the
// same. // C07
func TestWithDefaultsSetsEveryRule(t *testing.T) {
	sealed := accepted().(Accepted).WithDefaults()
	data, err := json.Marshal(sealed)
	if err != nil {
		t.Fatal(err)
	}
	var stored Accepted
	if err := json.Unmarshal(data, &stored); err != nil {
		t.Fatal(err)
	}
	other := defaults{
		rules: Rules{Attempts: 91, DeadOwners: 92, StuckMS: 102, DeadOwnersPerCall: 103, RetryWaitMS: 93, Estimate: budget.Estimate{BytesPerToken: 94, Output: 95, MinOutput: 96}},
		guard: policy.Guard{Threshold: 97, Window: 98, Failures: 104, Alternations: 99, SameReads: 100, SameWrites: 101},
	}
	if diff := cmp.Diff(sealed, stored.withDefaults(other)); diff != "" {
		t.Errorf("a build with other constants reads it differently:\n%s", diff)
	}
	own := accepted(func(a *Accepted) { a.Guard.Threshold, a.Rules.Attempts = 7, 9 }).(Accepted).WithDefaults()
	if own.Guard.Threshold != 7 || own.Rules.Attempts != 9 {
		t.Errorf("WithDefaults changed fields that were set: %+v", own)
	}
}

// Decide uses the constants in the run's Accepted. // C07
func TestDecideUsesTheRulesInAccepted(t *testing.T) {
	numbers := func(r Rules) func(*Accepted) { return func(a *Accepted) { a.Rules, a.Grade = r, Durable } }
	retry := func(b *TurnFailed) { b.RetryAt = 9_000 }
	guarded := with(begin(func(a *Accepted) { a.Guard.Threshold = 2 }), asked(0, 1), turn(0, model.StopCalls, "a", "a"), prepared("0.0", same), prepared("0.1", same), started("0.0"), done("0.0"))
	for name, tt := range map[string]struct {
		facts []Body
		want  Action
	}{
		"one attempt":     {with(begin(numbers(Rules{Attempts: 1})), asked(0, 1), failed(1, model.Transient)), Finish{Reason: event.ModelError}},
		"short waits":     {with(begin(numbers(Rules{RetryWaitMS: 10})), asked(0, 1), failed(1, model.Transient, retry)), Finish{Reason: event.ModelError}},
		"two owners":      {with(begin(numbers(Rules{DeadOwners: 2, StuckMS: 1})), Resumed{}, Resumed{}), Finish{Reason: event.Lost}},
		"two repetitions": {guarded, AnswerCalls{Calls: []CallKey{"0.1"}, Outcome: NotRun}},
		"minimum output":  {begin(numbers(Rules{Estimate: budget.Estimate{MinOutput: 50}}), tokens(40)), Finish{Reason: event.Tokens}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(strip(tt.want), strip(Decide(Fold(facts(tt.facts...))))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A call with a CallStarted is in flight, even if the current guard would have
// refused it. // P01
func TestGuardDoesNotRevokeAStartedCall(t *testing.T) {
	for _, m := range []policy.Mode{policy.Nudge, policy.Fail} {
		s := Fold(facts(with(begin(guard(m), durable), asked(0, 1), turn(0, model.StopCalls, "r", "r", "r"),
			prepared("0.0", reads, same), prepared("0.1", reads, same), prepared("0.2", reads, same),
			started("0.0"), started("0.1"), started("0.2"), done("0.0"), done("0.1"), Resumed{})...))
		if diff := cmp.Diff(Action(ExecuteTools{[]CallKey{"0.2"}}), Decide(s)); diff != "" {
			t.Errorf("%s: %s", m, diff)
		}
	}
}

// Abandon returns the calls of any turn that started and did not end, also for a
// journal without its first fact. // P01
func TestAbandonKeepsOpenCalls(t *testing.T) {
	all := facts(with(oneTurn("a", "b"), prepared("0.0"), prepared("0.1"), started("0.0"), started("0.1"), done("0.1"),
		asked(1, 1), turn(1, model.StopCalls, "a"), started("1.0"), CallStarted{Key: "1.0", Attempt: 2})...)
	for _, fs := range [][]Fact{all, all[1:]} {
		s := Abandon(fs, 40)
		for _, want := range []Action{
			AnswerCalls{Calls: []CallKey{"0.0", "1.0"}, Outcome: Unknown, Text: "The run ended before this call did; it may or may not have taken effect."},
			Finish{Reason: event.Lost},
		} {
			s = Apply(s, Fact{Seq: s.Seq + 1, Body: CancelRequested{Cause: event.Lost}})
			if diff := cmp.Diff(want, Decide(s)); diff != "" {
				t.Fatal(diff)
			}
			for _, c := range s.Calls {
				done := Fact{Seq: s.Seq + 1, Body: CallDone{Key: c.Key, Attempt: c.Attempt, Outcome: Unknown, ResultRef: "r"}}
				if !c.Done && Allowed(s, done) != nil {
					t.Fatal(Allowed(s, done))
				}
				s = Apply(s, done)
			}
		}
	}
}

// A fact that cannot be decoded may be a CallStarted. A call is not_run only if
// it provably never started. // D19
func TestAbandonCountsCallsAsStartedWhenFactsAreMissing(t *testing.T) {
	asking := with(oneTurn("a", "yours", "ghost"), prepared("0.0"), prepared("0.1", clients), prepared("0.2", unknown))
	const unknownText = "The run ended before this call did; it may or may not have taken effect."
	missing := func(fs []Fact, seq int64) []Fact {
		return slices.DeleteFunc(slices.Clone(fs), func(f Fact) bool { return f.Seq == seq })
	}
	started := facts(with(asking, started("0.0"), CancelRequested{Cause: event.Cancelled})...)
	turn := int64(slices.IndexFunc(started, func(f Fact) bool { return f.Body.Kind() == KindTurn }) + 1)
	last := int64(len(started))
	for name, tt := range map[string]struct {
		facts []Fact
		last  int64
		want  Action
	}{
		"before the cancel":          {missing(started, last-1), last, AnswerCalls{[]CallKey{"0.0"}, Unknown, unknownText}},
		"the last ones":              {started[:last-2], last, AnswerCalls{[]CallKey{"0.0"}, Unknown, unknownText}},
		"the preparation":            {missing(missing(started, turn+1), last-1), last, AnswerCalls{[]CallKey{"0.0"}, Unknown, unknownText}},
		"only before the turn":       {missing(missing(started, last-1), turn-1)[:last-3], last - 2, AnswerCalls{[]CallKey{"0.0", "0.1", "0.2"}, NotRun, "Not run: the run ended (cancelled)."}},
		"none, and nothing has left": {facts(asking...), last - 2, AnswerCalls{[]CallKey{"0.0", "0.1", "0.2"}, NotRun, "Not run: the run ended (cancelled)."}},
	} {
		t.Run(name, func(t *testing.T) {
			s := Abandon(tt.facts, tt.last)
			s = Apply(s, Fact{Seq: s.Seq + 1, Body: CancelRequested{Cause: event.Cancelled}})
			if diff := cmp.Diff(tt.want, Decide(s)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
