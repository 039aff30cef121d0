// Package policy holds the verdicts that need nothing but data. Progress, the
// guard against a model that runs in circles, is the first of them.
package policy

import "fmt"

// Mode says what the progress guard does.
type Mode string

// The modes of the guard.
const (
	Nudge Mode = "nudge" // calls that complete a circle are answered with advice; one of a later turn that goes on with it ends the run
	Fail  Mode = "fail"  // the call that completes a circle ends the run, in whichever turn
	Off   Mode = "off"
)

// DefaultThreshold is how many repetitions make a circle.
const DefaultThreshold = 3

// Guard watches the calls of a run. The zero value is off. A number of 0 means
// that of [Defaults].
type Guard struct {
	Mode      Mode `json:"mode,omitempty"`
	Threshold int  `json:"threshold,omitempty"` // how many repetitions make a circle
	Window    int  `json:"window,omitempty"`    // how many past calls the guard looks at, at most

	// How many times the threshold the other shapes take: calls that alternate,
	// and the same result from a reading tool and from one that may write.
	Alternations int `json:"alternations,omitempty"`
	SameReads    int `json:"same_reads,omitempty"`
	SameWrites   int `json:"same_writes,omitempty"`
}

// Defaults returns the numbers of a guard, without a mode.
func Defaults() Guard {
	return Guard{Threshold: DefaultThreshold, Window: 64, Alternations: 2, SameReads: 2, SameWrites: 4}
}

// Or returns g with the numbers that it does not name taken from other, and with
// a window that holds the longest circle.
func (g Guard) Or(other Guard) Guard {
	for _, n := range []struct {
		to   *int
		from int
	}{
		{&g.Threshold, other.Threshold}, {&g.Window, other.Window},
		{&g.Alternations, other.Alternations}, {&g.SameReads, other.SameReads}, {&g.SameWrites, other.SameWrites},
	} {
		if *n.to <= 0 {
			*n.to = n.from
		}
	}
	g.Window = max(g.Window, g.Threshold*max(g.Alternations, g.SameReads, g.SameWrites))
	return g
}

// Past is one tool call that the model has asked for.
type Past struct {
	Turn    int    `json:"turn,omitempty"` // the round of the turn that asked for it
	Tool    string `json:"tool"`
	Args    string `json:"args"`              // digest of the arguments
	Result  string `json:"result,omitempty"`  // digest of the result; empty while unknown or when not run
	Invalid bool   `json:"invalid,omitempty"` // the arguments were refused, or nobody owns the name
	Advised Shape  `json:"advised,omitempty"` // the circle about which the guard answered it; empty: it did not
	Reads   bool   `json:"reads,omitempty"`   // known to change nothing
	Exempt  bool   `json:"exempt,omitempty"`  // a polling tool, marked as such by the operator
}

// Shape is a kind of circle.
type Shape string

// The shapes.
const (
	Identical  Shape = "identical"   // the same call over and over
	Invalid    Shape = "invalid"     // calls that are refused one after the other
	PingPong   Shape = "ping_pong"   // two calls in turn with the same two results
	SameResult Shape = "same_result" // one tool that answers the same whatever it is asked
)

// Verdict is what the guard says of the next call.
type Verdict int

// The verdicts.
const (
	Go     Verdict = iota
	Advise         // do not run it, tell the model so
	Halt           // end the run
)

// Check judges the next call after the past ones, oldest first. The shape and the
// text say what the guard saw, the text in words for the model; both are empty
// for Go.
//
// The model writes all calls of a turn before it reads the answer to any. In mode
// Nudge, every call of the turn that completes a circle is therefore advised, and
// the run ends only with a call of a later turn: one that goes on with the circle,
// or that completes another one with a call that was advised before.
//
// An honest search may come back empty a few times and an honest bulk write says
// "ok" often: sameness of results alone needs twice the repetitions of a reading
// tool, and four times those of one that may write.
func (g Guard) Check(past []Past, next Past) (Verdict, Shape, string) {
	if g.Mode == Off || g.Mode == "" || next.Exempt {
		return Go, "", ""
	}
	g = g.Or(Defaults())
	limit := g.Threshold
	dull := g.SameWrites * limit
	if next.Reads {
		dull = g.SameReads * limit
	}
	same, sameFrom := sameResult(past, next)
	circles := []circle{
		inARow(Identical, past, identical(past, next), limit, "This is the same call with the same arguments for the %s time in a row."),
		inARow(Invalid, past, invalid(past, next), limit, "This is the %s call in a row that could not be run."),
		inARow(PingPong, past, pingPong(past, next), g.Alternations*limit, "The same two calls have alternated; this is the %s of them."),
		{SameResult, same, sameFrom, dull, "This tool gives the same result whatever the arguments; this is the %s such call in a row."},
	}
	worst, shape, text := Go, Shape(""), ""
	for _, c := range circles {
		if v := g.judge(c, past, next); v > worst {
			worst, shape, text = v, c.shape, fmt.Sprintf(c.text, ordinal(c.n))
		}
	}
	return worst, shape, text
}

// circle is a row of n calls of one shape, which the next call ends. It is one
// from limit calls on.
type circle struct {
	shape Shape
	n     int
	from  int // where it begins among the past calls
	limit int
	text  string
}

// inARow is a circle of which all the last past calls are part.
func inARow(shape Shape, past []Past, n, limit int, text string) circle {
	return circle{shape, n, len(past) + 1 - n, limit, text}
}

func (g Guard) judge(c circle, past []Past, next Past) Verdict {
	switch {
	case c.n < c.limit:
		return Go
	case g.Mode == Nudge && !c.advised(past, next):
		return Advise
	}
	return Halt
}

// advised reports whether the model has read advice about the circle, or about a
// call like next.
func (c circle) advised(past []Past, next Past) bool {
	for i, p := range past {
		if p.Advised != "" && p.Turn < next.Turn && (same(p, next) || p.Advised == c.shape && i >= c.from) {
			return true
		}
	}
	return false
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
// that change are progress; those of calls that were asked for together are not
// known yet.
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
		known := past[i].Result != "" && later.Result != ""
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

// sameResult counts the calls of one tool with one result, next included, and
// says where they begin. A call that was answered by the guard has no result: it
// is not counted, and ends nothing.
func sameResult(past []Past, next Past) (n, from int) {
	n, from = 1, len(past)
	result := ""
	for i := len(past) - 1; i >= 0 && past[i].Tool == next.Tool; i-- {
		p := past[i]
		if p.Advised != "" {
			continue
		}
		if p.Result == "" || result != "" && p.Result != result {
			break
		}
		result = p.Result
		n, from = n+1, i
	}
	return n, from
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
