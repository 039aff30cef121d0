// Package policy holds checks that are pure functions of their arguments. [Guard]
// detects a model that repeats its tool calls without progress, or whose calls keep failing.
package policy

import "fmt"

// Mode is what the progress guard does about a repetition.
type Mode string

// The modes of the guard.
const (
	Nudge Mode = "nudge" // answer the calls with advice; if a later turn continues the repetition, end the run
	Fail  Mode = "fail"  // end the run
	Off   Mode = "off"   // do nothing
)

// The defaults of Guard.Threshold and Guard.Failures.
const (
	DefaultThreshold = 3
	DefaultFailures  = 5
)

// Guard detects repetitions and series of failures in the tool calls of a run. The zero value is off. A field
// of 0 means that of [Defaults].
type Guard struct {
	Mode      Mode `json:"mode,omitempty"`
	Threshold int  `json:"threshold,omitempty"` // calls in a row that make a repetition
	Window    int  `json:"window,omitempty"`    // past calls that are examined, at most
	Failures  int  `json:"failures,omitempty"`  // failed calls of one tool since its last success, after which the next is judged

	// Multiples of Threshold for the other patterns: PingPong, SameResult of a tool
	// that only reads, SameResult of a tool that may write.
	Alternations int `json:"alternations,omitempty"`
	SameReads    int `json:"same_reads,omitempty"`
	SameWrites   int `json:"same_writes,omitempty"`
}

// Defaults returns the default numbers of a guard, without a mode.
func Defaults() Guard {
	return Guard{Threshold: DefaultThreshold, Failures: DefaultFailures, Window: 64, Alternations: 2, SameReads: 2, SameWrites: 4}
}

// WithDefaults returns g with each number that is not positive set to that of other, and with a
// window that holds the longest pattern.
func (g Guard) WithDefaults(other Guard) Guard {
	for _, n := range []struct {
		to   *int
		from int
	}{
		{&g.Threshold, other.Threshold}, {&g.Window, other.Window}, {&g.Failures, other.Failures},
		{&g.Alternations, other.Alternations}, {&g.SameReads, other.SameReads}, {&g.SameWrites, other.SameWrites},
	} {
		if *n.to <= 0 {
			*n.to = n.from
		}
	}
	g.Window = max(g.Window, g.Threshold*max(g.Alternations, g.SameReads, g.SameWrites))
	return g
}

// PastCall is a tool call of the run.
type PastCall struct {
	Turn    int     `json:"turn,omitempty"` // its round
	Tool    string  `json:"tool"`
	Args    string  `json:"args"`              // digest of the arguments
	Result  string  `json:"result,omitempty"`  // digest of the result; "" = not known yet, or not executed
	Invalid bool    `json:"invalid,omitempty"` // the arguments were refused, or the tool is unknown
	Failed  bool    `json:"failed,omitempty"`  // the call was executed, and its result is an error or unknown
	Advised Pattern `json:"advised,omitempty"` // the pattern that the guard's advice was about; "" = no advice
	Reads   bool    `json:"reads,omitempty"`   // the tool only reads
	Exempt  bool    `json:"exempt,omitempty"`  // the operator marked the tool as polling
}

// Pattern is a kind of repetition.
type Pattern string

// The patterns.
const (
	Identical  Pattern = "identical"   // the same call with the same arguments, in a row
	Invalid    Pattern = "invalid"     // invalid calls in a row
	PingPong   Pattern = "ping_pong"   // two alternating calls whose results do not change
	SameResult Pattern = "same_result" // calls of one tool in a row with one result, whatever the arguments
	Failing    Pattern = "failing"     // failed or invalid calls of one tool since its last success, whatever is called in between
)

// Verdict is the guard's decision on a call.
type Verdict int

// The verdicts.
const (
	Allow  Verdict = iota
	Advise         // do not execute it; answer it with the advice
	Halt           // end the run
)

// Check returns the verdict on the call next. past are the calls before it, oldest
// first. For a verdict other than Allow it also returns the pattern that it found and
// the advice for the model, or for Halt what was repeated; for Allow both are "".
//
// A model writes all calls of a turn before it reads a result. Mode Nudge therefore
// advises every call of the turn that repeats. It halts only on a call of a later
// turn: one that continues the repetition, or one that repeats a call that was advised
// before.
//
// Repeated results alone are weak evidence: a search may find nothing several times,
// and a bulk write returns "ok" each time. SameResult therefore needs Guard.SameReads
// times the threshold for tools that only read (2 by default), and Guard.SameWrites
// times for others (4 by default).
//
// Failing counts the failures that the model has read: Guard.Failures of them (5 by default)
// are executed, and the next call of the tool is advised. A success of the tool starts the
// count again.
func (g Guard) Check(past []PastCall, next PastCall) (Verdict, Pattern, string) {
	if g.Mode == Off || g.Mode == "" || next.Exempt {
		return Allow, "", ""
	}
	g = g.WithDefaults(Defaults())
	limit := g.Threshold
	sameLimit := g.SameWrites * limit
	if next.Reads {
		sameLimit = g.SameReads * limit
	}
	same, sameFrom := sameResult(past, next)
	failed, failedFrom := failing(past, next)
	found := []repetition{
		streak(Identical, past, identical(past, next), limit, "This is the same call with the same arguments for the %s time in a row.", "%d identical tool calls in a row"),
		streak(Invalid, past, invalid(past, next), limit, "This is the %s invalid call in a row.", "%d invalid tool calls in a row"),
		streak(PingPong, past, pingPong(past, next), g.Alternations*limit, "The same two calls have alternated; this is the %s of them.", "%d tool calls that alternate between the same two"),
		{SameResult, same, sameFrom, sameLimit, "This tool gives the same result whatever the arguments; this is the %s such call in a row.", "%d calls of one tool in a row with the same result"},
		{Failing, failed, failedFrom, g.Failures + 1, "This tool keeps failing; this is the %s call since it last succeeded. Do not call it again.", "%d calls of one tool since it last succeeded"},
	}
	worst, shape, text := Allow, Pattern(""), ""
	for _, c := range found {
		if v := g.judge(c, past, next); v > worst {
			worst, shape, text = v, c.pattern, fmt.Sprintf(c.text, ordinal(c.n))
			if v == Halt {
				text = fmt.Sprintf(c.count, c.n)
			}
		}
	}
	return worst, shape, text
}

// repetition is a row of n calls of one pattern, next included. It counts as a repetition
// if n is at least limit.
type repetition struct {
	pattern Pattern
	n       int
	from    int // index of its first call in past
	limit   int
	text    string // the advice
	count   string // what was repeated
}

// streak returns the repetition of the last n-1 past calls and next.
func streak(shape Pattern, past []PastCall, n, limit int, text, count string) repetition {
	return repetition{shape, n, len(past) + 1 - n, limit, text, count}
}

func (g Guard) judge(c repetition, past []PastCall, next PastCall) Verdict {
	switch {
	case c.n < c.limit:
		return Allow
	case g.Mode == Nudge && !c.advised(past, next):
		return Advise
	}
	return Halt
}

// advised reports whether the model has read advice about this repetition, or about an
// earlier call equal to next.
func (c repetition) advised(past []PastCall, next PastCall) bool {
	for i, p := range past {
		if p.Advised != "" && p.Turn < next.Turn && (sameCall(p, next) || p.Advised == c.pattern && i >= c.from) {
			return true
		}
	}
	return false
}

// identical returns the number of equal calls in a row, next included.
func identical(past []PastCall, next PastCall) int {
	n := 1
	for i := len(past) - 1; i >= 0 && past[i].Tool == next.Tool && past[i].Args == next.Args; i-- {
		n++
	}
	return n
}

// invalid returns the number of invalid calls in a row, next included; 0 if next is
// valid.
func invalid(past []PastCall, next PastCall) int {
	if !next.Invalid {
		return 0
	}
	n := 1
	for i := len(past) - 1; i >= 0 && past[i].Invalid; i-- {
		n++
	}
	return n
}

// pingPong returns the number of calls in an alternation A B A B, next included; 0 if
// there is none. A changed result is progress and ends the alternation. Results of
// calls in the same turn are not known yet and are not compared.
func pingPong(past []PastCall, next PastCall) int {
	if len(past) == 0 || sameCall(past[len(past)-1], next) {
		return 0
	}
	n := 1
	for i := len(past) - 2; i >= 0; i-- {
		later := next // the call two places after past[i]
		if i+2 < len(past) {
			later = past[i+2]
		}
		known := past[i].Result != "" && later.Result != ""
		if !sameCall(past[i], later) || known && past[i].Result != later.Result {
			break
		}
		n++
	}
	if n == 1 {
		return 0
	}
	return n + 1 // the call after the oldest match belongs to the alternation as well
}

func sameCall(a, b PastCall) bool { return a.Tool == b.Tool && a.Args == b.Args }

// sameResult returns the number of calls of one tool in a row with one result, next
// included, and the index of the first. Calls that the guard advised have no result:
// they are skipped.
func sameResult(past []PastCall, next PastCall) (n, from int) {
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

// failing returns the number of calls of the tool since its last success, next included, and the
// index of the first. Calls that were advised, and calls whose results are not known yet, do not
// count.
func failing(past []PastCall, next PastCall) (n, from int) {
	n, from = 1, len(past)
	for i := len(past) - 1; i >= 0; i-- {
		p := past[i]
		if p.Tool != next.Tool {
			continue
		}
		if p.Failed || p.Invalid && p.Advised == "" {
			n, from = n+1, i
		} else if p.Result != "" {
			break
		}
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
