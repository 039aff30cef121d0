package policy

import (
	"fmt"
	"strings"
	"testing"
)

// calls parses a history of "tool:args=result" words. A trailing ! marks an invalid
// call, ? a polling tool, ~ a tool that only reads, ^ a result that is an error. A leading + puts a call into the turn
// of the call before it; otherwise it starts a new turn.
func calls(words string) []PastCall {
	var out []PastCall
	for _, w := range strings.Fields(words) {
		p := PastCall{Turn: len(out)}
		if w[0] == '+' {
			w, p.Turn = w[1:], out[len(out)-1].Turn
		}
		for strings.ContainsAny(w[len(w)-1:], "!?~^") {
			switch w[len(w)-1] {
			case '!':
				p.Invalid = true
			case '?':
				p.Exempt = true
			case '~':
				p.Reads = true
			case '^':
				p.Failed = true
			}
			w = w[:len(w)-1]
		}
		head, result, _ := strings.Cut(w, "=")
		p.Tool, p.Args, _ = strings.Cut(head, ":")
		p.Result = result
		out = append(out, p)
	}
	return out
}

// judge checks the calls in order and returns one character for each: . = Allow, n =
// Advise, X = Halt. As in the loop, the calls of a turn are checked before any of them
// has a result, and the run continues after advice.
func judge(g Guard, words string) string {
	var past []PastCall
	var out strings.Builder
	all := calls(words)
	for i, next := range all {
		v, shape, _ := g.Check(past, PastCall{Turn: next.Turn, Tool: next.Tool, Args: next.Args, Invalid: next.Invalid, Exempt: next.Exempt, Reads: next.Reads})
		out.WriteString([]string{".", "n", "X"}[v])
		all[i].Advised = shape
		next.Advised, next.Result, next.Failed = shape, "", false
		past = append(past, next)
		if i+1 == len(all) || all[i+1].Turn != next.Turn { // the turn is executed here
			for j := range past {
				if past[j].Advised == "" {
					past[j].Result, past[j].Failed = all[j].Result, all[j].Failed
				}
			}
		}
	}
	return out.String()
}

func TestProgress(t *testing.T) { // B13 P04
	nudge := Guard{Mode: Nudge}
	tests := []struct {
		name  string
		guard Guard
		calls string
		want  string
	}{
		{"the third identical call is answered with advice, the fourth ends the run", nudge, "a:1=x a:1=x a:1=x a:1=x", "..nX"},
		{"fail ends the run at the third", Guard{Mode: Fail}, "a:1=x a:1=x a:1=x", "..X"},
		{"two identical calls and another are allowed", nudge, "a:1=x a:1=x b:1=x a:1=x a:1=x", "....."},
		{"identical calls repeat even if the results change", nudge, "a:1=x a:1=y a:1=z", "..n"},
		{"calls with other arguments are different", nudge, "a:1=x a:2=y a:3=z a:4=w", "...."},
		{"a run that follows the advice continues", nudge, "a:1=x a:1=x a:1=x a:2=y", "..n."},
		{"an alternation with the same results is a repetition", nudge, "a:1=x b:1=y a:1=x b:1=y a:1=x b:1=y a:1=x", ".....nX"},
		{"an alternation whose results change is progress", nudge, "a:1=x b:1=y a:1=x2 b:1=y2 a:1=x3 b:1=y3 a:1=x4", "......."},
		{"an alternation that continues after advice ends the run", nudge, "a:1=x b:1=y a:1=x b:1=y a:1=x b:1=y a:1=x b:1=y", ".....nXX"},
		{"different invalid calls in a row are a repetition", nudge, "a:1! b:2! c:3! d:4!", "..nX"},
		{"a valid call between invalid ones is progress", nudge, "a:1! b:2! c:3=x d:4!", "...."},
		{"a reading tool with one result for everything stops at twice the threshold", nudge, "s:1=x~ s:2=x~ s:3=x~ s:4=x~ s:5=x~ s:6=x~ s:7=x~", ".....nX"},
		{"a tool that may write gets four times the threshold", nudge, strings.Join(numbered("w:%d=ok", 13), " "), "...........nX"},
		{"a different result in between resets the count", nudge, "s:1=x~ s:2=x~ s:3=y~ s:4=x~ s:5=x~ s:6=x~ s:7=x~", "......."},
		{"calls of one turn have no results yet", nudge, "s:1~ s:2~ s:3~ s:4~ s:5~ s:6~ s:7~", "......."},
		// P58
		{"five failures of a tool with other arguments, then advice, then the end", nudge, "a:1=p^ a:2=q^ a:3=r^ a:4=s^ a:5=t^ a:6 a:7", ".....nX"},
		{"other tools in between change nothing", nudge, "a:1=p^ b:1=x a:2=q^ c:1=y a:3=r^ a:4=s^ b:2=z a:5=t^ a:6 c:2=w a:7", "........n.X"},
		{"a success of the tool starts the count again", nudge, "a:1=p^ a:2=q^ a:3=r^ a:4=s^ a:5=ok a:6=t^ a:7=u^ a:8=v^ a:9=w^ a:10=x^ a:11", "..........n"},
		{"refused arguments are failures too", nudge, "a:1=p^ a:2! a:3=r^ a:4! a:5=t^ a:6", ".....n"},
		{"failures of one turn are read in the next", nudge, "a:1=p^ +a:2=q^ +a:3=r^ +a:4=s^ +a:5=t^ +a:6=u^ +a:7=v^ b:1=x a:8 +a:9 a:10", "........nnX"},
		{"fail ends the run at the sixth", Guard{Mode: Fail}, "a:1=p^ a:2=q^ a:3=r^ a:4=s^ a:5=t^ a:6", ".....X"},
		{"another number", Guard{Mode: Nudge, Failures: 2}, "a:1=p^ a:2=q^ a:3 a:4", "..nX"},
		{"a polling tool may fail", nudge, "a:1=p^? a:2=q^? a:3=r^? a:4=s^? a:5=t^? a:6=u^? a:7?", "......."},
		// Several calls of one turn: the model has read no advice while it wrote them.
		{"identical calls of one turn are advised from the third on", nudge, "a:1=x +a:1 +a:1 +a:1 +a:1 +a:1 +a:1 +a:1", "..nnnnnn"},
		{"a later turn that repeats an advised call ends the run", nudge, "a:1=x +a:1=x +a:1 +a:1 a:1", "..nnX"},
		{"a later turn with other calls continues", nudge, "a:1=x +a:1=x +a:1 +a:1 a:2=y +b:1=z a:3=w", "..nn..."},
		{"a repetition across turns is advised before it ends the run", nudge, "a:1=x a:1=x +a:1 +a:1 a:1", "..nnX"},
		{"the same repetition after other calls", nudge, "a:1=x +a:1=x +a:1 b:1=y +a:1 +a:1 +a:1", "..n...X"},
		{"fail counts the calls of one turn", Guard{Mode: Fail}, "a:1=x +a:1 +a:1 +a:1", "..XX"},
		{"advised calls do not count as results", nudge, "s:1=x~ +s:1=x~ +s:1~ +s:1~ +s:1~ +s:1~ s:2=x~ s:3=x~", "..nnnn.."},
		{"advice about one pattern does not count for another", nudge, "s:1=x~ +s:1=x~ +s:1~ s:2=x~ s:3=x~ s:4=x~ s:5=x~ s:6~", "..n...nX"},
		{"an alternation within one turn", nudge, "a:1=x +b:1=y +a:1=x +b:1=y +a:1=x +b:1 +a:1 +b:1", ".....nnn"},
		{"an alternation that a later turn continues", nudge, "a:1=x +b:1=y +a:1=x +b:1=y +a:1=x +b:1 a:1", ".....nX"},
		{"an alternation of pairs of calls, one pair a turn", nudge, "a:1=x +b:1=y a:1=x +b:1=y a:1=x +b:1=y a:1=x +b:1=y", ".....nXX"},
		{"pairs of calls whose results change are progress", nudge, "a:1=x1 +b:1=y1 a:1=x2 +b:1=y2 a:1=x3 +b:1=y3 a:1=x4 +b:1=y4", "........"},
		{"invalid calls of one turn are advised from the third on", nudge, "a:1! +b:2! +c:3! +d:4! +e:5!", "..nnn"},
		{"a later turn with an invalid call ends the run", nudge, "a:1! +b:2! +c:3! +d:4! e:5!", "..nnX"},
		{"a later turn with a valid call continues", nudge, "a:1! +b:2! +c:3! +d:4! e:5=x f:6!", "..nn.."},
		{"one result for all calls of a reading tool", nudge, "s:1=x~ +s:2=x~ +s:3=x~ +s:4=x~ +s:5=x~ +s:6=x~ +s:7=x~ +s:8=x~ s:9~ +s:10~ s:11~", "........nnX"},
		{"one result for all calls of a writing tool", nudge, "w:0=ok +" + strings.Join(numbered("w:%d=ok", 14)[1:], " +") + " w:20 +w:21 w:22", "..............nnX"},
		{"a polling tool never trips", nudge, "p:1=x? p:1=x? p:1=x? p:1=x? p:1=x?", "....."},
		{"off never trips", Guard{Mode: Off}, "a:1=x a:1=x a:1=x a:1=x", "...."},
		{"the zero guard is off", Guard{}, "a:1=x a:1=x a:1=x a:1=x", "...."},
		{"the threshold can be set", Guard{Mode: Nudge, Threshold: 5}, "a:1=x a:1=x a:1=x a:1=x a:1=x a:1=x", "....nX"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := judge(tt.guard, tt.calls); got != tt.want {
				t.Errorf("verdicts %s, want %s", got, tt.want)
			}
		})
	}
}

func numbered(format string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(format, i)
	}
	return out
}

func TestAdviceNamesTheOrdinal(t *testing.T) {
	_, _, text := Guard{Mode: Nudge}.Check(calls("a:1=x a:1=x"), PastCall{Tool: "a", Args: "1"})
	if !strings.Contains(text, "3rd time") {
		t.Errorf("advice %q does not name the 3rd time", text)
	}
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 22: "22nd", 112: "112th"} {
		if got := ordinal(n); got != want {
			t.Errorf("ordinal(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestWindowHoldsTheLongestPattern(t *testing.T) {
	for threshold, want := range map[int]int{0: 64, 3: 64, 16: 64, 17: 68, 100: 400} {
		g := Guard{Mode: Nudge, Threshold: threshold}.WithDefaults(Defaults())
		if g.Window != want {
			t.Errorf("threshold %d: a window of %d calls, want %d", threshold, g.Window, want)
		}
		verdicts := judge(g, strings.Join(numbered("w:%d=ok", 4*g.Threshold), " "))
		if i := strings.IndexByte(verdicts, 'n'); i != 4*g.Threshold-1 {
			t.Errorf("threshold %d: advice after %d calls, want %d", threshold, i+1, 4*g.Threshold)
		}
	}
}
