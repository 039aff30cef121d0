package loop

import (
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestAllowedRefuses(t *testing.T) {
	cancel := CancelRequested{By: "p", Cause: event.Cancelled}
	tests := []struct {
		name  string
		facts []Body
		next  Body
		want  string
	}{
		{"anything before the run is accepted", nil, catalogued(), "not accepted"},
		{"a second acceptance", []Body{accepted()}, accepted(), "already accepted"},
		{"an acceptance without a target", nil, accepted(func(b *Accepted) { b.Targets = nil }), "no target"},
		{"a raw run that is no relay", nil, accepted(func(b *Accepted) { b.Raw = true }), "want"},
		{"discovery in a relay", []Body{accepted(translated)}, catalogued(), "CallModel"},
		{"a raw answer in a translated relay", []Body{accepted(translated), asked(0, 1)}, Turn{Purpose: PurposeRaw}, "CallModel"},
		{"preparing a call of a relay", []Body{accepted(translated), asked(0, 1), turn(0, model.StopCalls, "a")}, prepared("0.0"), "client_calls"},
		{"a second model call of a relay", []Body{accepted(translated), asked(0, 1), turn(0, model.StopEnd)}, asked(1, 1), "complete"},
		{"anything after the end", with(begin(), asked(0, 1), turn(0, model.StopEnd), Finished{Reason: event.Complete}), cancel, "has finished"},
		{"a model call before discovery", []Body{accepted()}, asked(0, 1), "Discover"},
		{"a turn without a model call", begin(), turn(0, model.StopEnd), "CallModel"},
		{"a turn of another round", with(begin(), asked(0, 1)), turn(1, model.StopEnd), "belongs to"},
		{"preparing a call of no turn", begin(), prepared("0.0"), "belongs to"},
		{"preparing out of order", oneTurn("a", "b"), prepared("0.1"), "belongs to"},
		{"executing an unprepared call", oneTurn("a"), started("0.0"), "PrepareTools"},
		{"executing a gated call", with(oneTurn("g"), prepared("0.0", gated)), started("0.0"), "Interrupt"},
		{"executing a denied call", with(oneTurn("g"), prepared("0.0", gated), waiting("0.0", "w"), Parked{}, CallResolved{WaitID: "w"}), started("0.0"), "AnswerCalls"},
		{"executing the caller's call", with(oneTurn("c"), prepared("0.0", clients)), started("0.0"), "client_calls"},
		{"executing a refused call", with(oneTurn("a"), prepared("0.0", badArgs)), started("0.0"), "AnswerCalls"},
		{"executing after a cancel", with(oneTurn("a"), prepared("0.0"), cancel), started("0.0"), "AnswerCalls"},
		{"executing a call twice", with(oneTurn("a"), prepared("0.0"), started("0.0"), done("0.0")), started("0.0"), "belongs to"},
		{"repeating a once-call whose answer was lost", with(oneTurn("a"), prepared("0.0"), started("0.0")), CallStarted{Key: "0.0", Attempt: 2}, "AnswerCalls"},
		{"serial: a call beside another", with(begin(mode(Serial)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1"), started("0.0")), started("0.1"), "AnswerCalls"},
		{"safe: a writing call beside another", with(begin(mode(Safe)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1"), started("0.0")), started("0.1"), "AnswerCalls"},
		{"safe: a writing call beside a reading one", with(begin(mode(Safe)), asked(0, 1), turn(0, model.StopCalls, "a", "r"), prepared("0.0"), prepared("0.1", reads), started("0.1")), started("0.0"), "ExecuteTools"},
		{"executing beyond the run's limit", with(begin(callLimit(1)), asked(0, 1), turn(0, model.StopCalls, "a", "b"), prepared("0.0"), prepared("0.1"), started("0.0"), done("0.0")), started("0.1"), "AnswerCalls"},
		{"a result of an attempt that was not started", with(oneTurn("a"), prepared("0.0")), done("0.0"), "not started"},
		{"a second result", with(oneTurn("a"), prepared("0.0"), started("0.0"), done("0.0")), done("0.0"), "unknown or already done"},
		{"answering a call that may run", with(oneTurn("a"), prepared("0.0")), answered("0.0", NotRun), "ExecuteTools"},
		{"an end for another reason", with(begin(), asked(0, 1), turn(0, model.StopEnd)), Finished{Reason: event.MaxRounds}, "complete"},
		{"an end while calls wait to run", with(oneTurn("a"), prepared("0.0")), Finished{Reason: event.Complete}, "ExecuteTools"},
		{"parking before every approval is asked for", with(oneTurn("g", "g"), prepared("0.0", gated), prepared("0.1", gated), waiting("0.0", "w")), Parked{}, "Interrupt"},
		{"a decision on an unknown approval", begin(), CallResolved{WaitID: "w"}, "no call waits"},
		{"a second decision", with(oneTurn("g"), prepared("0.0", gated), waiting("0.0", "w"), Parked{}, CallResolved{WaitID: "w", Approved: true}), CallResolved{WaitID: "w"}, "belongs to"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := play(t, tt.facts...)
			err := Allowed(s, Fact{Seq: s.Seq + 1, Epoch: 1, Body: tt.next})
			if err == nil {
				t.Fatal("the fact is allowed")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not contain %q", err, tt.want)
			}
		})
	}
}

func TestAllowedLetsParallelCallsStartTogether(t *testing.T) { // C01
	play(t, with(oneTurn("a", "b", "c"), prepared("0.0"), prepared("0.1"), prepared("0.2"),
		started("0.0"), started("0.1"), started("0.2"), done("0.1"), done("0.2"), done("0.0"), asked(1, 1))...)
}

// Finished comes after the results of all calls, also for a lost run. // P01
func TestLostRunAnswersItsCallsBeforeFinishing(t *testing.T) {
	lost := CancelRequested{Cause: event.Lost}
	s := play(t, with(oneTurn("a"), prepared("0.0"), started("0.0"), lost)...)
	if err := Allowed(s, Fact{Seq: s.Seq + 1, Body: Finished{Reason: event.Lost}}); err == nil {
		t.Error("Finished is allowed while a call is open")
	}
	play(t, with(oneTurn("a"), prepared("0.0"), started("0.0"), lost, CallDone{Key: "0.0", Attempt: 1, Outcome: Unknown, ResultRef: "r"}, Finished{Reason: event.Lost})...)
}
