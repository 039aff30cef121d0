package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/bench/fake"
)

// judgeAll judges the runs of a pass by all that the two ledgers show. What
// belongs to none of them is reported: a run before went on after its end.
func (l *loopResult) judgeAll(scripts []fake.Script, calls []fake.ToolCall, turns []fake.ModelCall) error {
	callsOf, turnsOf := map[int][]fake.ToolCall{}, map[int][]fake.ModelCall{}
	for _, c := range calls {
		callsOf[fake.RunOf(c.ID)] = append(callsOf[fake.RunOf(c.ID)], c)
	}
	for _, t := range turns {
		turnsOf[t.Run] = append(turnsOf[t.Run], t)
	}
	for _, s := range scripts {
		if err := l.judge(s, callsOf[s.Run], turnsOf[s.Run]); err != nil {
			return err
		}
		delete(callsOf, s.Run)
		delete(turnsOf, s.Run)
	}
	if len(callsOf)+len(turnsOf) > 0 {
		return fmt.Errorf("tool calls of %d and model calls of %d runs that nobody asked for", len(callsOf), len(turnsOf))
	}
	return nil
}

// judge notes what the ledgers of one run show. It fails when the run was not
// the scripted one: then its time means nothing.
func (l *loopResult) judge(s fake.Script, calls []fake.ToolCall, turns []fake.ModelCall) error {
	if err := complete(s, calls, turns); err != nil {
		return fmt.Errorf("run %d: %w", s.Run, err)
	}
	peak, overlaps := overlap(calls)
	l.peak = max(l.peak, peak)
	l.overlaps += overlaps
	if why := disorder(s, turns); why != "" {
		l.disorders++
		if l.firstDisorder == "" {
			l.firstDisorder = fmt.Sprintf("run %d, %s. ", s.Run, why)
		}
	}
	return nil
}

// complete checks that every scripted call was made, and made once, and that
// the model was called once for each round and once for the answer.
func complete(s fake.Script, calls []fake.ToolCall, turns []fake.ModelCall) error {
	var want, got []int
	for round, tools := range s.Rounds {
		for i := range tools {
			want = append(want, s.CallID(round, i))
		}
	}
	for _, c := range calls {
		got = append(got, c.ID)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("the tool was called for %v, want %v", got, want)
	}
	for i, t := range turns {
		if t.Run != s.Run || t.Round != i {
			return fmt.Errorf("model call %d was for run %d, round %d", i, t.Run, t.Round)
		}
	}
	if len(turns) != len(s.Rounds)+1 {
		return fmt.Errorf("%d model calls, want %d", len(turns), len(s.Rounds)+1)
	}
	return nil
}

// overlap returns the most calls at the same time, and how many began before
// an earlier one had ended.
func overlap(calls []fake.ToolCall) (peak, overlaps int) {
	byStart := slices.SortedFunc(slices.Values(calls), func(a, b fake.ToolCall) int {
		return cmp.Compare(a.Start, b.Start)
	})
	for i, c := range byStart {
		running := 1
		for _, earlier := range byStart[:i] {
			if earlier.End > c.Start {
				running++
			}
		}
		if running > 1 {
			overlaps++
		}
		peak = max(peak, running)
	}
	return peak, overlaps
}

// disorder says how the tool results of a model request differ from those of
// the calls before it, in the order of the calls; "" when they do not.
func disorder(s fake.Script, turns []fake.ModelCall) string {
	for _, t := range turns[1:] {
		round := t.Round - 1
		if len(t.Results) != len(s.Rounds[round]) {
			return fmt.Sprintf("round %d: %d tool results, want %d", round, len(t.Results), len(s.Rounds[round]))
		}
		for i, r := range t.Results {
			id := s.CallID(round, i)
			if want := (fake.ToolResult{CallID: fake.ProviderID(id), Text: fake.Result(id)}); r != want {
				return fmt.Sprintf("round %d: result %d is %q of %s, want %q of %s",
					round, i, r.Text, r.CallID, want.Text, want.CallID)
			}
		}
	}
	return ""
}
