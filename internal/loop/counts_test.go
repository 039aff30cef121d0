package loop

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/model"
)

// Every report of a run uses the same counts: calls that were answered without being
// executed are not tool calls of the run, and a call is counted once.
func TestCounts(t *testing.T) {
	usage := model.Usage{Input: 3, Output: 4}
	s := play(t, with(begin(durable, perTurn(3)),
		asked(0, 1), failed(1, model.Transient, func(b *TurnFailed) { b.Usage = usage }), // 7 tokens
		asked(0, 2), turn(0, model.StopCalls, "a", "ghost", "b", "over"), // 15 tokens
		prepared("0.0", reads), prepared("0.1", unknown), prepared("0.2"), prepared("0.3"),
		started("0.0"), Resumed{}, CallStarted{Key: "0.0", Attempt: 2}, CallDone{Key: "0.0", Attempt: 2, Outcome: OK, ResultRef: "r"},
		answered("0.1", Error), started("0.2"), done("0.2"), answered("0.3", SkippedLimit),
		asked(1, 1), turn(1, model.StopEnd), // 15 tokens
	)...)
	if want := (Counts{Rounds: 2, Calls: 2, Tokens: 37}); s.Counts != want || s.Spent.Rounds != 2 {
		t.Errorf("%+v, %d rounds spent; want %+v", s.Counts, s.Spent.Rounds, want)
	}
	if got := Fold(facts(accepted(raw), TurnStarted{Attempt: 1, Purpose: PurposeRaw}, Turn{Purpose: PurposeRaw})).Counts; got != (Counts{}) {
		t.Errorf("a raw relay counts %+v", got)
	}
}

// A run that is given up keeps its counts.
func TestAbandonedRunKeepsItsCounts(t *testing.T) {
	journal := facts(with(oneTurn("a"), prepared("0.0"), started("0.0"), done("0.0"))...)
	if got, want := Abandon(journal, 9).Counts, Fold(journal).Counts; got != want || got.Calls != 1 {
		t.Errorf("%+v, want %+v", got, want)
	}
}
