package policy

import (
	"fmt"
	"strings"
	"testing"
)

// calls builds a history from "tool:args=result" words; a trailing ! marks an
// invalid call, ? a polling tool, ~ one that only reads.
func calls(words string) []Past {
	var out []Past
	for _, w := range strings.Fields(words) {
		var p Past
		for strings.ContainsAny(w[len(w)-1:], "!?~") {
			switch w[len(w)-1] {
			case '!':
				p.Invalid = true
			case '?':
				p.Exempt = true
			case '~':
				p.Reads = true
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

// judge plays the words in order and returns the verdict of each call, letting
// the run go on after advice as the loop does.
func judge(g Guard, words string) string {
	var past []Past
	var out strings.Builder
	for _, next := range calls(words) {
		v, _ := g.Check(past, Past{Tool: next.Tool, Args: next.Args, Invalid: next.Invalid, Exempt: next.Exempt, Reads: next.Reads})
		out.WriteString([]string{".", "n", "X"}[v])
		if v == Advise {
			next.Nudged, next.Result = true, ""
		}
		past = append(past, next)
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
		{"two identical calls and another go on", nudge, "a:1=x a:1=x b:1=x a:1=x a:1=x", "....."},
		{"identical calls are a circle even when the results change", nudge, "a:1=x a:1=y a:1=z", "..n"},
		{"other arguments are another call", nudge, "a:1=x a:2=y a:3=z a:4=w", "...."},
		{"advice that is followed lets the run go on", nudge, "a:1=x a:1=x a:1=x a:2=y", "..n."},
		{"an alternation with the same results is a circle", nudge, "a:1=x b:1=y a:1=x b:1=y a:1=x b:1=y a:1=x", ".....nX"},
		{"an alternation whose results change is progress", nudge, "a:1=x b:1=y a:1=x2 b:1=y2 a:1=x3 b:1=y3 a:1=x4", "......."},
		{"an alternation that was advised and goes on is still one", nudge, "a:1=x b:1=y a:1=x b:1=y a:1=x b:1=y a:1=x b:1=y", ".....nXX"},
		{"calls that are refused in a row are a circle whatever they say", nudge, "a:1! b:2! c:3! d:4!", "..nX"},
		{"a valid call between refused ones is progress", nudge, "a:1! b:2! c:3=x d:4!", "...."},
		{"a reading tool with one result for everything stops at twice the threshold", nudge, "s:1=x~ s:2=x~ s:3=x~ s:4=x~ s:5=x~ s:6=x~ s:7=x~", ".....nX"},
		{"a tool that may write gets four times the threshold", nudge, strings.Join(numbered("w:%d=ok", 13), " "), "...........nX"},
		{"a different result in between resets the count", nudge, "s:1=x~ s:2=x~ s:3=y~ s:4=x~ s:5=x~ s:6=x~ s:7=x~", "......."},
		{"calls asked for at once have no results yet", nudge, "s:1~ s:2~ s:3~ s:4~ s:5~ s:6~ s:7~", "......."},
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

func TestAdviceCountsInWords(t *testing.T) {
	_, text := Guard{Mode: Nudge}.Check(calls("a:1=x a:1=x"), Past{Tool: "a", Args: "1"})
	if !strings.Contains(text, "3rd time") {
		t.Errorf("advice %q does not name the 3rd time", text)
	}
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 22: "22nd", 112: "112th"} {
		if got := ordinal(n); got != want {
			t.Errorf("ordinal(%d) = %s, want %s", n, got, want)
		}
	}
}
