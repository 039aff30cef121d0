package loop

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/window"
	"github.com/turnpike-gateway/turnpike/model"
)

func sized(w int64) func(*Accepted) {
	return func(b *Accepted) { b.Targets[0].Window = window.Size{Window: w} }
}

func contextMode(m ContextMode) func(*Accepted) {
	return func(b *Accepted) { b.Context.Mode = m }
}

// none is an attempt that found nothing to leave out.
func none() []Body {
	return []Body{Compacted{Before: 15, After: 15, Largest: []window.Share{{Name: "user messages", Tokens: 9}}}}
}

// nextRound makes another call after a compaction.
func nextRound(round int) []Body {
	return []Body{asked(round, 1), turn(round, model.StopCalls, "b"), prepared(Key(round, 0)), started(Key(round, 0)), done(Key(round, 0))}
}

// A prompt is compacted before its call if it is above the threshold, and not below. // I06 P51
func TestWhenAPromptIsCompacted(t *testing.T) {
	for name, tt := range map[string]struct {
		change []func(*Accepted)
		limit  int64 // 0 = the model is called
	}{
		"above the threshold":                    {[]func(*Accepted){compacting}, 12},
		"below it":                               {[]func(*Accepted){compacting, func(b *Accepted) { b.Context.Threshold = 500 }}, 0},
		"above what the window gives":            {[]func(*Accepted){contextMode(ContextAuto), sized(16)}, 12},
		"the caller's threshold is not above it": {[]func(*Accepted){contextMode(ContextAuto), sized(16), func(b *Accepted) { b.Context.Threshold = 500 }}, 12},
		"the window is not known":                {[]func(*Accepted){contextMode(ContextAuto)}, 0},
		"switched off":                           {[]func(*Accepted){sized(16), func(b *Accepted) { b.Context.Threshold = 12 }}, 0},
		"the provider does it itself":            {[]func(*Accepted){compacting, func(b *Accepted) { b.Targets[0].OwnContext = true }}, 0},
		"placeholders only":                      {[]func(*Accepted){compacting, contextMode(ContextPrune)}, 12},
	} {
		t.Run(name, func(t *testing.T) {
			facts := afterOneRound()
			s := play(t, as(facts, tt.change...)...)
			a, compacts := Decide(s).(Compact)
			if compacts != (tt.limit > 0) || compacts && (a.Limit != tt.limit || a.Tokens != s.PromptTokens()) {
				t.Errorf("%#v", Decide(s))
			}
		})
	}
}

// Two attempts in a row that free nothing end the run. After three that fail, no more are made, and the run goes on. // P51
func TestCompactionsThatDoNotHelp(t *testing.T) {
	one := with(longRound(), none()...)
	if _, calls := Decide(play(t, one...)).(CallModel); !calls {
		t.Errorf("after the first: %#v", Decide(play(t, one...)))
	}
	two := with(with(one, nextRound(1)...), none()...)
	s := play(t, two...)
	if a, ends := Decide(s).(Finish); !ends || a.Reason != event.TooLong || !cmp.Equal(a.Cause.Largest, []window.Share{{Name: "user messages", Tokens: 9}}) {
		t.Errorf("after the second: %#v", Decide(s))
	}
	pruning := as(two, compacting, contextMode(ContextPrune))
	if _, calls := Decide(play(t, pruning...)).(CallModel); !calls {
		t.Errorf("a run that only prunes: %#v", Decide(play(t, pruning...)))
	}
	helped := with(with(with(one, nextRound(1)...), summary(3, "sum")), nextRound(2)...)
	if _, compacts := Decide(play(t, with(helped, none()...)...)).(CallModel); !compacts {
		t.Error("one that helped does not interrupt the row")
	}

	facts := longRound()
	for round := 1; round <= maxFailedCompactions; round++ {
		if _, compacts := Decide(play(t, facts...)).(Compact); !compacts {
			t.Fatalf("round %d: %#v", round, Decide(play(t, facts...)))
		}
		facts = with(with(facts, Compacted{Failed: true}), nextRound(round)...)
	}
	if a, calls := Decide(play(t, facts...)).(CallModel); !calls {
		t.Errorf("after %d failures: %#v", maxFailedCompactions, a)
	}
}

// A refusal that names a limit makes the window known, also for later rounds. // I04
func TestARefusalNamesTheWindow(t *testing.T) {
	limited := func(b *TurnFailed) { b.Limit = 14 }
	facts := with(as(afterOneRound(), reacting), asked(1, 1), failed(1, model.TooLong, limited))
	s := play(t, facts...)
	if a, ok := Decide(s).(Compact); !ok || a.Limit != 11 {
		t.Errorf("%#v", Decide(s))
	}
	s = play(t, with(facts, with([]Body{summary(3, "sum")}, asked(1, 2), turn(1, model.StopCalls, "b"), prepared("1.0"), started("1.0"), done("1.0"))...)...)
	if a, ok := Decide(s).(Compact); !ok || a.Limit != 11 || a.Number != 2 {
		t.Errorf("in the next round: %#v", Decide(s))
	}
}

// A summary is reserved in the budgets, and counted whole if its owner dies. // I11
func TestASummaryIsReserved(t *testing.T) {
	facts := as(afterOneRound(), compacting, shared, func(b *Accepted) { b.Grade = Durable })
	facts = with(facts[:3], with([]Body{reserved(0, 1, 90)}, facts[3:]...)...)
	s := play(t, facts...)
	a, ok := Decide(s).(Compact)
	if !ok || a.MaxCost.Tokens < 15 || a.MaxOutput <= 0 {
		t.Fatalf("%#v", Decide(s))
	}
	reservation := Reserved{Round: 1, Scopes: []string{"org"}, Amount: a.MaxCost, Compaction: 1}
	died := play(t, with(facts, reservation, Resumed{By: "next"})...)
	if died.Spent.Tokens != s.Spent.Tokens+a.MaxCost.Tokens || died.Reserved != nil {
		t.Errorf("spent %+v, reserved %+v", died.Spent, died.Reserved)
	}
	if again, ok := Decide(died).(Compact); !ok || again.Number != 2 {
		t.Errorf("the next owner: %#v", Decide(died))
	}
	refused := play(t, with(facts, reservation, Compacted{Failed: true, Refused: true})...)
	if refused.Spent != s.Spent || refused.Reserved != nil {
		t.Errorf("a call that was refused costs %+v", refused.Spent)
	}
	lost := play(t, with(facts, reservation, Compacted{Failed: true})...)
	if lost.Spent.Tokens != s.Spent.Tokens+a.MaxCost.Tokens {
		t.Errorf("a call without a count costs %+v", lost.Spent)
	}
}

// A summary costs what its own model costs, and none is written that a limit on money has no room for.
func TestWhatASummaryCosts(t *testing.T) {
	cheap := func(b *Accepted) {
		b.Summarizer = &Target{Provider: "up", Model: "small", Price: money.Price{From: "2026-03-01", Rates: money.Rates{Input: money.PerMillion / 10, Output: money.PerMillion}}}
	}
	s := play(t, with(as(afterOneRound(), compacting, priced, cheap), summary(3, "sum"))...)
	before := play(t, as(afterOneRound(), compacting, priced, cheap)...)
	if got, want := s.Spent.NanoUSD-before.Spent.NanoUSD, int64(7*100+3*1_000); got != want {
		t.Errorf("%d nano-USD, want %d", got, want)
	}
	dear := func(b *Accepted) {
		b.Summarizer = &Target{Provider: "up", Model: "large", Price: money.Price{From: "2026-03-01", Rates: money.Rates{Input: 1_000 * money.PerMillion, Output: 1_000 * money.PerMillion}}}
	}
	limited := as(afterOneRound(), compacting, priced, dear, nanoUSD(50_000_000))
	poor := play(t, with(limited[:3], with([]Body{reserved(0, 1, 8_202)}, limited[3:]...)...)...)
	if a, ok := Decide(poor).(Compact); !ok || !a.PruneOnly || (a.MaxCost != budget.Amount{}) {
		t.Errorf("%#v", Decide(poor))
	}
}

// What the provider has counted says how many tokens a text has.
func TestTokensAreCalibrated(t *testing.T) {
	facts := []Body{accepted(contextMode(ContextAuto)), InputAdded{ItemsRef: "in", By: ByClient, Bytes: 2_000}, catalogued(), asked(0, 1)}
	counted := Turn{Purpose: PurposeTurn, Stop: model.StopCalls, ItemsRef: "t0.0", Usage: model.Usage{Input: 1_000, Output: 5}, Calls: []TurnCall{{ProviderID: "id", Name: "a", Arguments: "{}", Complete: true}}}
	s := play(t, with(facts, counted, prepared("0.0"), started("0.0"), CallDone{Key: "0.0", Attempt: 1, Outcome: OK, ResultRef: "r0.0", Bytes: 600})...)
	if got := s.PromptTokens(); got != 1_005+300 {
		t.Errorf("%d tokens", got)
	}
}

// A compaction refers to rows of the transcript.
func TestSeenParts(t *testing.T) {
	s := play(t, with(longRound(), summary(2, "sum"))...)
	want := []SeenPart{{"sum", 0}, {"r0.0", 3}}
	if diff := cmp.Diff(want, s.SeenParts()); diff != "" {
		t.Error(diff)
	}
	s = play(t, with(with(longRound(), summary(2, "sum")), nextRound(1)...)...)
	want = []SeenPart{{"sum", 0}, {"r0.0", 3}, {"t1.0", 5}, {"r1.0", 6}}
	if diff := cmp.Diff(want, s.SeenParts()); diff != "" {
		t.Error(diff)
	}
}

// What a summary and the next call may cost is reserved by the bytes that no provider has counted. // P03
func TestWhatComesAfterACompactionIsReserved(t *testing.T) {
	facts := as(afterOneRound(), compacting, shared, func(b *Accepted) { b.Grade = Durable })
	facts = with(facts[:3], with([]Body{reserved(0, 1, 90)}, facts[3:]...)...)
	s := play(t, facts...)
	per := s.Accepted.Rules.Estimate.BytesPerToken
	a, ok := Decide(s).(Compact)
	if least := s.CountedTokens + (s.UncountedBytes+window.OrderBytes)/per + a.MaxOutput; !ok || a.MaxCost.Tokens < least {
		t.Errorf("%#v, want at least %d tokens", Decide(s), least)
	}
	made := summary(3, "sum")
	made.Bytes = 3_000
	s = play(t, with(facts, Reserved{Round: 1, Scopes: []string{"org"}, Amount: a.MaxCost, Compaction: 1}, made)...)
	if c, ok := Decide(s).(CallModel); !ok || c.MaxCost.Tokens < c.MaxOutput+3_000/per {
		t.Errorf("%#v, want the output and %d tokens", Decide(s), 3_000/per)
	}
}

// A provider that shortens prompts itself gets them whole; another target of the run does not. // P50
func TestAProviderMayShortenPromptsItself(t *testing.T) {
	own := func(b *Accepted) { b.Targets[0].OwnContext = true }
	if a, calls := Decide(play(t, as(afterOneRound(), compacting, own)...)).(CallModel); !calls || a.Target != 0 {
		t.Errorf("before a call: %#v", Decide(play(t, as(afterOneRound(), compacting, own)...)))
	}
	if a, compacts := Decide(play(t, as(afterOneRound(), compacting)...)).(Compact); !compacts {
		t.Errorf("without it: %#v", a)
	}
	refused := with(as(afterOneRound(), reacting, own), asked(1, 1), failed(1, model.TooLong))
	if a, ends := Decide(play(t, refused...)).(Finish); !ends || a.Reason != event.TooLong {
		t.Errorf("after a refusal: %#v", Decide(play(t, refused...)))
	}
}
