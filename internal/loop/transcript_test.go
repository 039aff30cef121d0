package loop

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
)

func input(ref string, by Adder) Body { return InputAdded{ItemsRef: ref, By: by, Bytes: 30} }

func summary(until int, refs ...string) Compacted {
	return Compacted{Until: until, Refs: refs, Before: 900, After: 40, Usage: model.Usage{Input: 7, Output: 3}}
}

// compacting has a threshold above the first prompt, and below that of the second round.
func compacting(b *Accepted) { b.Context = ContextPolicy{Mode: ContextAuto, Threshold: 12} }

// reacting compacts only what a provider refuses: the window is not known.
func reacting(b *Accepted) { b.Context = ContextPolicy{Mode: ContextAuto} }

// as returns the facts as those of another run.
func as(facts []Body, change ...func(*Accepted)) []Body {
	return with([]Body{accepted(change...)}, facts[1:]...)
}

// longRound are the facts of a run whose next prompt is above its threshold.
func longRound() []Body { return as(afterOneRound(), compacting) }

// afterOneRound are the facts of a run whose first round is over. Its transcript is in, t0.0, r0.0.
func afterOneRound() []Body {
	return []Body{accepted(), input("in", ByClient), catalogued(), asked(0, 1), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), done("0.0")}
}

// The model sees what a compaction puts in place, and then what came after it. What the
// caller does not see stays whole. // I03 P51
func TestWhatTheModelSees(t *testing.T) {
	again := []Body{asked(1, 1), turn(1, model.StopCalls, "b"), prepared("1.0"), started("1.0"), done("1.0")}
	for name, tt := range map[string]struct {
		facts        []Body
		seen, hidden []string
	}{
		"everything":             {afterOneRound(), []string{"in", "t0.0", "r0.0"}, []string{"t0.0", "r0.0"}},
		"a summary of all":       {with(longRound(), summary(3, "sum")), []string{"sum"}, []string{"t0.0", "r0.0"}},
		"a summary and the rest": {with(with(longRound(), summary(3, "sum")), again...), []string{"sum", "t1.0", "r1.0"}, []string{"t0.0", "r0.0", "t1.0", "r1.0"}},
		"rows that stay":         {with(longRound(), summary(3, "in", "t0.0", "pruned")), []string{"in", "t0.0", "pruned"}, []string{"t0.0", "r0.0"}},
		"a second compaction":    {with(with(with(longRound(), summary(2, "sum")), again...), summary(6, "sum2")), []string{"sum2"}, []string{"t0.0", "r0.0", "t1.0", "r1.0"}},
		"an attempt that failed": {with(longRound(), Compacted{Failed: true}), []string{"in", "t0.0", "r0.0"}, []string{"t0.0", "r0.0"}},
		"input of a hook":        {[]Body{accepted(), input("in", ByClient), input("h", ByHook), catalogued()}, []string{"in", "h"}, []string{"h"}},
		"input during a call":    {with(afterOneRound()[:6], input("late", ByClient), started("0.0"), done("0.0")), []string{"in", "t0.0", "r0.0", "late"}, []string{"t0.0", "r0.0", "late"}},
		"input during a model call": {with(afterOneRound()[:4], input("late", ByOther), turn(0, model.StopCalls, "a"), prepared("0.0"), started("0.0"), done("0.0")),
			[]string{"in", "t0.0", "r0.0", "late"}, []string{"t0.0", "r0.0", "late"}},
		"input during an attempt that failed": {with(afterOneRound()[:4], input("late", ByOther), failed(1, model.Transient), asked(0, 2)), []string{"in", "late"}, []string{"late"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, tt.facts...)
			if diff := cmp.Diff(tt.seen, s.Seen()); diff != "" {
				t.Errorf("seen (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.hidden, s.HiddenRefs()); diff != "" {
				t.Errorf("hidden (-want +got):\n%s", diff)
			}
		})
	}
}

// A compaction is no round, and its model call is paid for like any other. // I11
func TestCompactionsArePaid(t *testing.T) {
	s := play(t, with(longRound(), summary(3, "sum"))...)
	if s.Spent.Rounds != 1 || s.Spent.Tokens != 25 || s.Counts.Tokens != 25 || s.Usage != (model.Usage{Input: 17, Output: 8}) {
		t.Errorf("%+v, %+v, %+v", s.Spent, s.Counts, s.Usage)
	}
	if s.CountedTokens != 40 || s.UncountedBytes != 0 {
		t.Errorf("the next prompt has %d tokens and %d bytes", s.CountedTokens, s.UncountedBytes)
	}
}

// A call that failed because the context is too long is made again after a compaction, once in a round. // I04 I06
func TestATooLongContextIsCompacted(t *testing.T) {
	off := with(afterOneRound(), asked(1, 1), failed(1, model.TooLong))
	if diff := cmp.Diff(finish(event.TooLong), strip(Decide(play(t, off...)))); diff != "" {
		t.Errorf("without a policy: %s", diff)
	}
	tooLong := as(off, reacting)
	if a, ok := Decide(play(t, tooLong...)).(Compact); !ok || a.Number != 1 || a.Tokens <= a.Limit {
		t.Errorf("%+v", a)
	}
	for name, after := range map[string][]Body{
		"an attempt that failed":    {Compacted{Failed: true}},
		"nothing could be left out": {Compacted{Before: 9, After: 9}},
		"another refusal":           {summary(3, "sum"), asked(1, 2), failed(2, model.TooLong)},
	} {
		if a, ok := Decide(play(t, with(tooLong, after...)...)).(Finish); !ok || a.Reason != event.TooLong {
			t.Errorf("after %s: %+v", name, a)
		}
	}
	call, ok := Decide(play(t, with(tooLong, summary(3, "sum"))...)).(CallModel)
	if !ok || call.Round != 1 || call.Attempt != 2 {
		t.Errorf("%+v", call)
	}
	for name, change := range map[string]func(*TurnFailed){"the caller has seen of it": forwarded, "a tool of the provider ran": func(b *TurnFailed) { b.ToolRan = true }} {
		if a, ok := Decide(play(t, with(as(afterOneRound(), reacting), asked(1, 1), failed(1, model.TooLong, change))...)).(Finish); !ok || a.Reason != event.TooLong {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

func TestCompactionsThatAreNotAllowed(t *testing.T) {
	for name, tt := range map[string]struct {
		facts []Body
		next  Compacted
	}{
		"before the tools are known":   {[]Body{accepted(compacting), input("in", ByClient)}, summary(1, "sum")},
		"during a model call":          {with(longRound(), Compacted{Failed: true}, asked(1, 1)), summary(3, "sum")},
		"before a call has its result": {longRound()[:7], summary(2, "sum")},
		"after the answer":             {with(longRound(), Compacted{Failed: true}, asked(1, 1), turn(1, model.StopEnd)), summary(3, "sum")},
		"after the end has come":       {with(longRound(), CancelRequested{Cause: event.Cancelled}), summary(3, "sum")},
		"of more than there is":        {longRound(), summary(4, "sum")},
		"of nothing":                   {longRound(), summary(0, "sum")},
		"of less than the last one":    {with(longRound(), summary(3, "sum")), summary(3, "sum2")},
		"of a run without a policy":    {afterOneRound(), summary(3, "sum")},
		"of another target":            {longRound(), Compacted{Target: 1, Until: 3, Refs: []string{"sum"}}},
		"a second one in a round":      {with(longRound(), Compacted{Before: 9, After: 9}), summary(3, "sum")},
		"failed, and with items":       {longRound(), Compacted{Failed: true, Refs: []string{"sum"}}},
		"with a negative size":         {longRound(), Compacted{Until: 1, Refs: []string{"sum"}, After: -1}},
		"of a relay":                   {[]Body{accepted(translated, compacting), input("in", ByClient)}, summary(1, "sum")},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, tt.facts...)
			f := Fact{Seq: s.Seq + 1, Epoch: 1, At: s.At, Version: Version, Body: tt.next}
			if Allowed(s, f) == nil {
				t.Error("it is allowed")
			}
			if after := Apply(s, f); !s.replaces(tt.next) && !cmp.Equal(s.Seen(), after.Seen()) {
				t.Errorf("it changes what the model sees: %v", after.Seen())
			}
		})
	}
}

// Input that comes after the answer, before the run has ended, gets a round of its own.
func TestInputIsSeenByTheNextTurn(t *testing.T) {
	said := with(afterOneRound(), asked(1, 1), turn(1, model.StopEnd))
	for name, facts := range map[string][]Body{
		"after the answer":  with(said, input("late", ByOther)),
		"during the answer": with(afterOneRound(), asked(1, 1), input("late", ByOther), turn(1, model.StopEnd)),
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, facts...)
			call, ok := Decide(s).(CallModel)
			if !ok || call.Round != 2 {
				t.Fatalf("%#v", Decide(s))
			}
			s = play(t, with(facts, asked(2, 1))...)
			if diff := cmp.Diff([]string{"in", "t0.0", "r0.0", "t1.0", "late"}, s.Seen()); diff != "" {
				t.Error(diff)
			}
			if s = play(t, with(facts, asked(2, 1), turn(2, model.StopEnd))...); !cmp.Equal(strip(Decide(s)), finish(event.Complete)) {
				t.Errorf("%#v", Decide(s))
			}
		})
	}
	last := with([]Body{accepted(rounds(1))}, catalogued(), asked(0, 1), turn(0, model.StopEnd), input("late", ByOther))
	if diff := cmp.Diff(finish(event.MaxRounds), strip(Decide(play(t, last...)))); diff != "" {
		t.Error(diff)
	}
}

// The caller cannot send back what others have added. // A08
func TestAddedInputIsHidden(t *testing.T) {
	s := play(t, accepted(), input("in", ByClient), input("h", ByHook), catalogued(), asked(0, 1), turn(0, model.StopEnd))
	if !s.HidesItems() {
		t.Error("the input of the hook is not among the hidden items")
	}
}
