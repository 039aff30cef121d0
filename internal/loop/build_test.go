package loop

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// The functions below build facts for tests.

func accepted(change ...func(*Accepted)) Body {
	b := Accepted{
		RunID: "r", Org: "o", Principal: "p", Surface: "chat", Policy: Policy{Grade: Light, Limits: budget.Limits{}.Clamp(budget.MaxRounds), Parallelism: Parallel, Guard: policy.Guard{Mode: policy.Nudge}},
		Targets: []Target{{Provider: "up", Model: "m"}},
	}
	for _, c := range change {
		c(&b)
	}
	return b
}

func raw(b *Accepted)         { b.Raw = true; b.Grade = Relay }
func translated(b *Accepted)  { b.Grade = Relay; b.Limits = budget.Limits{} }
func abortOnTool(b *Accepted) { b.AbortOnTool = true }
func noTools(b *Accepted)     { b.NoTools = true }
func answerLast(b *Accepted)  { b.Limits.OnLimit = budget.Answer }
func twoTargets(b *Accepted)  { b.Targets = append(b.Targets, Target{Provider: "other", Model: "m2"}) }

func mode(p Parallelism) func(*Accepted) { return func(b *Accepted) { b.Parallelism = p } }
func rounds(n int) func(*Accepted)       { return func(b *Accepted) { b.Limits.Rounds = n } }
func handOverLast(b *Accepted)           { b.Limits.OnLimit = budget.HandOver }
func callLimit(n int) func(*Accepted)    { return func(b *Accepted) { b.Limits.Calls = n } }
func perTurn(n int) func(*Accepted)      { return func(b *Accepted) { b.Limits.CallsPerTurn = n } }
func endCut(b *Accepted)                 { b.EndCut = true }
func continues(b *Accepted)              { b.Continuations = 2 }
func durable(b *Accepted)                { b.Grade = Durable }
func quick(b *Accepted)                  { b.Rules.StuckMS = 1 } // dead owners count at once
func tokens(n int64) func(*Accepted)     { return func(b *Accepted) { b.Limits.Tokens = n } }
func keepBack(percent int) func(*Accepted) {
	return func(b *Accepted) { b.Limits.OnLimit, b.Limits.KeepBack = budget.Answer, percent }
}
func guard(m policy.Mode) func(*Accepted) {
	return func(b *Accepted) { b.Guard = policy.Guard{Mode: m} }
}

func catalogued(servers ...Server) Body { return Catalogued{Servers: servers} }

func asked(round, attempt int) Body {
	return TurnStarted{Round: round, Attempt: attempt, Purpose: PurposeTurn}
}

// routed is the order of the targets of a round after a number of attempts.
func routed(round, attempt int, order ...int) Body {
	return Routed{Round: round, Attempt: attempt, Order: order}
}

// askedOf calls a target.
func askedOf(target, round, attempt int) Body {
	return TurnStarted{Round: round, Attempt: attempt, Target: target, Purpose: PurposeTurn}
}

func reserved(round, attempt int, tokens int64) Body {
	return Reserved{Round: round, Attempt: attempt, Scopes: []string{"run"}, Amount: budget.Amount{Tokens: tokens}}
}

func shared(b *Accepted) {
	b.Budgets = []budget.Shared{{Scope: "org", Limit: budget.Amount{Tokens: 1000}}}
}

func failed(attempt int, class model.ErrorClass, change ...func(*TurnFailed)) Body {
	b := TurnFailed{Attempt: attempt, Class: class}
	for _, c := range change {
		c(&b)
	}
	return b
}

// turn returns a Turn that asks for the named calls. A name that ends in "…" makes an
// incomplete call.
func turn(round int, stop model.Stop, names ...string) Body {
	b := Turn{Round: round, Purpose: PurposeTurn, Stop: stop, ItemsRef: "t" + string(Key(round, 0)), Usage: model.Usage{Input: 10, Output: 5}}
	for _, n := range names {
		c := TurnCall{ProviderID: "id", Name: n, Arguments: "{}", Complete: true}
		if cut := len(n) - len("…"); cut > 0 && n[cut:] == "…" {
			c.Name, c.Complete = n[:cut], false
		}
		b.Calls = append(b.Calls, c)
	}
	return b
}

// cutTurn is a turn whose rest the run asks for.
func cutTurn(round int) Body {
	b := turn(round, model.StopLength).(Turn)
	b.Continues = true
	return b
}

// restOf is a turn that goes on with one that was cut off.
func restOf(round int, stop model.Stop, names ...string) Body {
	b := turn(round, stop, names...).(Turn)
	b.WholeRef = "whole"
	return b
}

func prepared(key CallKey, change ...func(*CallPrepared)) Body {
	b := CallPrepared{Key: key, Owner: tool.Gateway, Class: tool.Once, ArgsDigest: string(key), Verdict: Run}
	for _, c := range change {
		c(&b)
	}
	return b
}

func clients(b *CallPrepared) { b.Owner, b.Verdict, b.Class = tool.Client, "", "" }
func unknown(b *CallPrepared) { b.Owner, b.Verdict, b.Answer = tool.Unknown, Answer, "no such tool" }
func badArgs(b *CallPrepared) { b.Verdict, b.Answer = Answer, "bad arguments" }
func gated(b *CallPrepared)   { b.Verdict = Ask }
func reads(b *CallPrepared)   { b.Class = tool.Read }
func same(b *CallPrepared)    { b.ArgsDigest = "same" }

// waiting asks for approval of a call that prepared has made.
func waiting(key CallKey, waitID string) Body {
	return CallWaiting{Key: key, WaitID: waitID, On: OnApproval, ArgsDigest: string(key)}
}

// preparedAgain makes it a later preparation of the call.
func preparedAgain(b *CallPrepared) { b.Revision, b.ArgsDigest = 1, "other" }

func started(key CallKey) Body { return CallStarted{Key: key, Attempt: 1} }

func done(key CallKey) Body {
	return CallDone{Key: key, Attempt: 1, Outcome: OK, ResultRef: "r" + string(key), ResultDigest: "d" + string(key)}
}

func answered(key CallKey, o Outcome) Body {
	return CallDone{Key: key, Outcome: o, ResultRef: "r" + string(key)}
}

func errored(key CallKey) Body {
	return CallDone{Key: key, Attempt: 1, Outcome: Error, ResultRef: "r" + string(key), ResultDigest: "e"}
}

// facts returns the bodies as facts: numbered from 1, one second apart.
func facts(bodies ...Body) []Fact {
	out := make([]Fact, len(bodies))
	for i, b := range bodies {
		out[i] = Fact{Seq: int64(i + 1), Epoch: 1, At: int64(i+1) * 1000, Version: Version, Body: b}
	}
	return out
}

// play folds the facts. It fails the test if one of them is not allowed.
func play(t *testing.T, bodies ...Body) State {
	t.Helper()
	var s State
	for _, f := range facts(bodies...) {
		if err := Allowed(s, f); err != nil {
			t.Fatalf("fact %d: %v", f.Seq, err)
		}
		s = Apply(s, f)
	}
	return s
}

// oneTurn returns the facts of a run whose first turn asks for the named calls.
func oneTurn(names ...string) []Body {
	return []Body{accepted(), catalogued(), asked(0, 1), turn(0, model.StopCalls, names...)}
}

func with(head []Body, tail ...Body) []Body { return append(append([]Body(nil), head...), tail...) }

func begin(change ...func(*Accepted)) []Body { return []Body{accepted(change...), catalogued()} }

func finish(r event.Reason) Action { return Finish{Reason: r} }

func retryAt(at int64) func(*TurnFailed) { return func(b *TurnFailed) { b.RetryAt = at } }
func forwarded(b *TurnFailed)            { b.Forwarded = true }
func status(n int) func(*TurnFailed)     { return func(b *TurnFailed) { b.Status = n } }

// afterOneOf returns the facts of a run with 1,000 tokens, of which 40 % are kept back, after a round with one
// call, whose result has so many bytes.
func afterOneOf(bytes int64) []Body {
	return with(begin(tokens(1000), keepBack(40)), reserved(0, 1, 600), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), CallDone{Key: "0.0", Attempt: 1, Outcome: OK, Bytes: bytes})
}

// withWarning is how many tokens so many bytes and the warning have, as they are estimated.
func withWarning(bytes int64) int64 { return (bytes + int64(len(BudgetWarning)) + 2) / 3 }

func warned(round, attempt int) Body {
	return TurnStarted{Round: round, Attempt: attempt, Purpose: PurposeTurn, Warned: true}
}

// toolless begins a model call that is offered no tools.
func toolless(round, attempt int) TurnStarted {
	return TurnStarted{Round: round, Attempt: attempt, Purpose: PurposeTurn, NoTools: true}
}
