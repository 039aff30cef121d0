// Package policy holds the verdicts that need nothing but data. Progress, the
// guard against a model that runs in circles, is the first of them.
package policy

import "fmt"

// Mode says what the progress guard does.
type Mode string

// The modes of the guard.
const (
	Nudge Mode = "nudge" // the call that completes a circle is answered with advice; the next one ends the run
	Fail  Mode = "fail"  // the call that completes a circle ends the run
	Off   Mode = "off"
)

// DefaultThreshold is how many repetitions make a circle.
const DefaultThreshold = 3

// Guard watches the calls of a run. The zero value is off.
type Guard struct {
	Mode      Mode `json:"mode,omitempty"`
	Threshold int  `json:"threshold,omitempty"` // 0 = DefaultThreshold
}

// Past is one tool call that the model has asked for.
type Past struct {
	Tool    string `json:"tool"`
	Args    string `json:"args"`              // digest of the arguments
	Result  string `json:"result,omitempty"`  // digest of the result; empty while unknown or when not run
	Invalid bool   `json:"invalid,omitempty"` // the arguments were refused, or nobody owns the name
	Nudged  bool   `json:"nudged,omitempty"`  // answered by the guard
	Reads   bool   `json:"reads,omitempty"`   // known to change nothing
	Exempt  bool   `json:"exempt,omitempty"`  // a polling tool, marked as such by the operator
}

// Window is how many past calls the guard looks at, at most.
const Window = 64

// Verdict is what the guard says of the next call.
type Verdict int

// The verdicts.
const (
	Go     Verdict = iota
	Advise         // do not run it, tell the model so
	Halt           // end the run
)

// Check judges the next call after the past ones, oldest first. The text says
// what the guard saw, in words for the model.
//
// Four shapes are circles: the same call over and over; two calls in turn with
// the same two results; one tool that answers the same whatever it is asked;
// and calls that are refused one after the other. An honest search may come
// back empty a few times and an honest bulk write says "ok" often: sameness of
// results alone needs twice the repetitions of a reading tool, and four times
// those of one that may write.
func (g Guard) Check(past []Past, next Past) (Verdict, string) {
	if g.Mode == Off || g.Mode == "" || next.Exempt {
		return Go, ""
	}
	limit := g.Threshold
	if limit <= 0 {
		limit = DefaultThreshold
	}
	dull := 4 * limit
	if next.Reads {
		dull = 2 * limit
	}
	shapes := []struct {
		n, limit int
		text     string
	}{
		{identical(past, next), limit, "This is the same call with the same arguments for the %s time in a row."},
		{invalid(past, next), limit, "This is the %s call in a row that could not be run."},
		{pingPong(past, next), 2 * limit, "The same two calls have alternated with the same results; this is the %s of them."},
		{sameResult(past, next), dull, "This tool gives the same result whatever the arguments; this is the %s such call in a row."},
	}
	worst, text := Go, ""
	for _, s := range shapes {
		if v := g.judge(s.n, s.limit); v > worst {
			worst, text = v, fmt.Sprintf(s.text, ordinal(s.n))
		}
	}
	return worst, text
}

func (g Guard) judge(n, limit int) Verdict {
	switch {
	case n < limit:
		return Go
	case n == limit && g.Mode == Nudge:
		return Advise
	}
	return Halt
}

// identical counts the run of equal calls that next ends.
func identical(past []Past, next Past) int {
	n := 1
	for i := len(past) - 1; i >= 0 && past[i].Tool == next.Tool && past[i].Args == next.Args; i-- {
		n++
	}
	return n
}

// invalid counts the run of refused calls that next ends.
func invalid(past []Past, next Past) int {
	if !next.Invalid {
		return 0
	}
	n := 1
	for i := len(past) - 1; i >= 0 && past[i].Invalid; i-- {
		n++
	}
	return n
}

// pingPong counts the calls of an alternation A B A B that next ends. Results
// that change are progress.
func pingPong(past []Past, next Past) int {
	if len(past) == 0 || same(past[len(past)-1], next) {
		return 0
	}
	n := 1
	for i := len(past) - 2; i >= 0; i-- {
		later := next // what stands two places after past[i]
		if i+2 < len(past) {
			later = past[i+2]
		}
		known := i+2 < len(past) && !past[i].Nudged && !later.Nudged
		if !same(past[i], later) || known && past[i].Result != later.Result {
			break
		}
		n++
	}
	if n == 1 {
		return 0
	}
	return n + 1 // the partner of the oldest match opens the alternation
}

func same(a, b Past) bool { return a.Tool == b.Tool && a.Args == b.Args }

// sameResult counts the calls of one tool with one result, next included.
func sameResult(past []Past, next Past) int {
	n, result := 1, ""
	for i := len(past) - 1; i >= 0 && past[i].Tool == next.Tool; i-- {
		p := past[i]
		switch {
		case p.Nudged:
		case p.Result == "" || result != "" && p.Result != result:
			return n
		default:
			result = p.Result
		}
		n++
	}
	return n
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}
