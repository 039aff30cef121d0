//go:build unix

package crash_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/soak"
)

// matrixCase is one way to be disturbed.
type matrixCase struct {
	name   string
	serial bool // the calls of a turn run one after the other
	slow   bool // waits for the clock: one of the two kinds of client will do
	kills  int
	turns  int    // model calls, of which those that a kill cut off are made again; 0 = depends
	ended  string // how the run ends

	// disturb starts gateways, ends them, and leaves one that serves. Once the
	// first is there it calls ask, after which the run is under way. What the
	// errand holds goes on when disturb returns.
	disturb func(w *world, ask func())
	held    string // what waits until then: model, tool, or nothing
}

// row names the line of the table that the case counts in: its points without
// their numbers.
func (c matrixCase) row() string {
	words := strings.Fields(c.name)
	for i, word := range words {
		words[i], _, _ = strings.Cut(word, ":")
	}
	return strings.Join(words, " ")
}

// matrixRun is one case of the matrix with one kind of client.
type matrixRun struct {
	matrixCase
	stream bool
}

// matrixRuns returns the cases with both kinds of client.
func matrixRuns() (all []matrixRun) {
	for i, c := range matrixCases() {
		for _, stream := range []bool{false, true} {
			if !c.slow || stream == (i%2 == 0) {
				all = append(all, matrixRun{c, stream})
			}
		}
	}
	return all
}

// sampled returns the cases of a table that this run takes: one of each group, in the CI job also a tenth of the table,
// with TURNPIKE_TEST_DEPTH=soak all.
func sampled[T any](t *testing.T, table []T, group func(T) string) []T {
	t.Helper()
	return soak.Sample(t, table, soak.Value(t, 0, (len(table)+9)/10, len(table)), group)
}

// only is the group of a case at POINT:N: the point, if the matrix does not have it. The other cases are one group.
func only(point string) string {
	name, _, _ := strings.Cut(point, ":")
	if slices.ContainsFunc(matrixCases(), func(c matrixCase) bool { return slices.Contains(strings.Fields(c.row()), name) }) {
		return ""
	}
	return name
}

// nth is the value of TURNPIKE_CRASH that kills the gateway when it passes the
// point for the n-th time.
func nth(point crash.Point, n int) string { return fmt.Sprintf("%s:%d", point, n) }

// matrixCases covers each point that a run of chat passes: the errand has three
// model calls and four tool calls, in two batches of facts or, in order, in four.
// The slowest come first.
func matrixCases() []matrixCase {
	cases := slowCases()
	each := func(serial bool, times int, points ...crash.Point) {
		for _, p := range points {
			for n := 1; n <= times; n++ {
				cases = append(cases, killedAt(serial, nth(p, n)))
			}
		}
	}
	cases = append(cases, killedAt(false))
	each(false, 1, crash.BeforeAccept, crash.AfterAccept, crash.BeforeFinish, crash.AfterFinish)
	each(false, 3, crash.AfterModelIntent, crash.AfterModelSend, crash.BeforeTurn, crash.AfterTurn)
	each(false, 2, crash.AfterDeltaStored, crash.AfterDelta, crash.AfterCallIntent)
	each(true, 4, crash.AfterCallIntent, crash.AfterCallSend, crash.BeforeResult, crash.AfterResult) // look, order, send, send
	each(false, 2, crash.AfterCallSend, crash.BeforeResult, crash.AfterResult)                       // whichever is first, and second
	return append(cases,
		killedAt(true, nth(crash.AfterAccept, 1), nth(crash.AfterClaim, 1)),
		killedAt(true, nth(crash.AfterTurn, 2), nth(crash.AfterClaim, 1), nth(crash.AfterClaim, 1)),
		killedAt(true, nth(crash.AfterCallSend, 3), nth(crash.AfterCallIntent, 1), nth(crash.AfterFinish, 1)),
		killedAt(true, nth(crash.AfterDelta, 3), nth(crash.AfterModelSend, 1)),
		killedAt(true, nth(crash.AfterResult, 2), nth(crash.AfterModelIntent, 1), nth(crash.BeforeFinish, 1)),
		matrixCase{name: string(crash.AfterCancel), kills: 1, ended: "cancelled", held: "tool", disturb: cancelled},
		matrixCase{name: "during drain", kills: 1, ended: "complete", held: "tool", disturb: killedWhileItDrains},
	)
}

func slowCases() []matrixCase {
	return []matrixCase{
		{name: string(crash.BeforeHandover), slow: true, kills: 1, ended: "complete", held: "tool", disturb: killedAfterTheDrain},
		{name: "paused in a tool call", slow: true, ended: "complete", held: "tool", disturb: paused},
		{name: "paused in a model call", slow: true, ended: "complete", held: "model", disturb: paused},
	}
}

// killedAt is the case of gateways that kill themselves at POINT:N, one after
// the other.
func killedAt(serial bool, points ...string) matrixCase {
	name, turns := strings.Join(points, " "), 3
	if name == "" {
		name = "undisturbed"
	}
	for _, point := range points {
		name, _, _ := strings.Cut(point, ":")
		switch crash.Point(name) {
		case crash.AfterModelSend, crash.AfterDeltaStored, crash.AfterDelta, crash.BeforeTurn: // the model is asked again
			turns++
		}
	}
	return matrixCase{
		name: name, serial: serial, kills: len(points), turns: turns, ended: "complete",
		disturb: func(w *world, ask func()) {
			for i, point := range append(points, "") {
				p := w.start(point)
				if i == 0 {
					ask()
				}
				if point != "" {
					p.wantKilled(w.T, "which passes "+point)
				}
			}
		},
	}
}

// cancelled kills the gateway when it has recorded that the run is to end.
func cancelled(w *world, ask func()) {
	p := w.start(nth(crash.AfterCancel, 1))
	ask()
	w.awaitHeld()
	for id := range w.runs() {
		w.cancelRun(id)
	}
	p.wantKilled(w.T, "which records a cancel")
	w.start("")
}

// killedWhileItDrains kills a gateway that was asked to stop and has not.
func killedWhileItDrains(w *world, ask func()) {
	p := w.start("")
	ask()
	w.awaitHeld()
	p.signal(syscall.SIGTERM)
	eventually(w.T, "the gateway stops", func() bool { return !w.ready() })
	p.kill()
	p.wantKilled(w.T, "which drains")
	w.start("")
}

// killedAfterTheDrain kills a gateway whose runs did not finish in the time that
// they have while it stops.
func killedAfterTheDrain(w *world, ask func()) {
	p := w.start(nth(crash.BeforeHandover, 1))
	ask()
	w.awaitHeld()
	p.signal(syscall.SIGTERM)
	p.wantKilled(w.T, "which hands its runs over")
	w.start("")
}

// paused stops the process with SIGSTOP until its lease has ended, and continues
// it: it must not act on a lease that it no longer has.
func paused(w *world, ask func()) {
	p := w.start("")
	ask()
	w.awaitHeld()
	p.signal(syscall.SIGSTOP)
	if err := pause(w.Context(), journal.LeaseTTL+time.Second); err != nil {
		w.Error(err)
	}
	p.signal(syscall.SIGCONT)
}

// Each constant of the package is in a case of the matrix, of the runs that wait, of webhooks, of hooks, of sessions, or of compactions.
func TestTheMatrixHasEveryPoint(t *testing.T) {
	text, err := os.ReadFile("crash.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range matrixCases() {
		names = append(names, strings.Fields(c.row())...)
	}
	for _, point := range approvalCases() {
		name, _, _ := strings.Cut(point, ":")
		names = append(names, name)
	}
	for point := range webhookCases() {
		names = append(names, string(point))
	}
	for _, point := range sessionCases(false) {
		name, _, _ := strings.Cut(point, ":")
		names = append(names, name)
	}
	for _, c := range hookCases() {
		names = append(names, string(c.point))
	}
	for point := range afterRunCases() {
		names = append(names, string(point))
	}
	for _, c := range customToolCases() {
		names = append(names, string(c.point))
	}
	for _, point := range compactionPoints() {
		names = append(names, string(point))
	}
	points := regexp.MustCompile(`Point = "(.*)"`).FindAllStringSubmatch(string(text), -1)
	if len(points) == 0 {
		t.Fatal("crash.go declares no points")
	}
	for _, p := range points {
		if !slices.Contains(names, p[1]) {
			t.Errorf("no case kills the gateway at %s", p[1])
		}
	}
}

// TestTheMatrixOfCrashes kills the gateway at every point that a durable run
// passes, and starts it again: the client that repeats its request gets the
// answer of an undisturbed run.
func TestTheMatrixOfCrashes(t *testing.T) { // P01 P24
	t.Parallel()
	total := runMatrix(t, newWorld, sampled(t, matrixRuns(), matrixRun.row))
	if soak.Depth(t) == soak.Soak && (total.unknown == 0 || total.broken == 0 || total.sends == total.keys) {
		t.Errorf("the matrix never saw a call whose outcome is unknown, a broken stream, or a keyed call that was repeated: %+v", total)
	}
}

// The same on PostgreSQL, where the run goes on when the lease of the gateway that was killed has ended.
func TestTheMatrixOfCrashesOnPostgreSQL(t *testing.T) { // P01 P24
	soak.Require(t, soak.Job, "each case waits for the end of a lease")
	t.Parallel()
	runs := matrixRuns()
	runMatrix(t, newWorldOnServer, soak.Sample(t, runs, soak.Value(t, 0, 4, len(runs)), nil))
}

// newWorldOnServer is newWorld with a schema on PostgreSQL.
func newWorldOnServer(t *testing.T, o options) *world {
	t.Helper()
	return newReplicated(t, o, 1).replicas[0].world
}

// runMatrix plays cases of the matrix, and reports what was seen.
func runMatrix(t *testing.T, in func(*testing.T, options) *world, cases []matrixRun) counts {
	t.Helper()
	var mu sync.Mutex
	table := map[string]counts{}
	t.Run("cases", func(t *testing.T) {
		for _, c := range cases {
			t.Run(fmt.Sprintf("%s serial=%v stream=%v", c.name, c.serial, c.stream), func(t *testing.T) {
				t.Parallel()
				got := c.run(t, in, c.stream)
				mu.Lock()
				defer mu.Unlock()
				table[c.row()] = table[c.row()].plus(got)
			})
		}
	})
	return report(t, table)
}

// run plays the errand in a disturbed world, and judges it.
func (c matrixCase) run(t *testing.T, world func(*testing.T, options) *world, stream bool) counts {
	runtime := "max_run_tokens: 100000" // sets tokens aside before each model call
	if c.serial {
		runtime += ", tool_parallelism: serial"
	}
	w, release := newErrandIn(t, world, c.held, runtime)
	q := question{text: "Run the errand.", stream: stream, key: "errand-1"}
	var got <-chan insistence
	c.disturb(w, func() { got = w.insist(q, nil) })
	release()
	in := w.answered(got)
	counted, all := w.judge(c.ended)
	w.wantErrand(q, in, c.ended, all)
	if n := len(w.provider.transcripts()); c.turns != 0 && n != c.turns {
		t.Errorf("the model was called %d times, want %d", n, c.turns)
	}
	return counted.plus(counts{cases: 1, kills: c.kills, broken: in.broken()})
}

// report prints the table and returns its last line.
func report(t *testing.T, table map[string]counts) counts {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "point\tcases\tkills\tresumed\tcut off\tonce effects\tunknown\tkeyed sends\tdistinct keys\t")
	line := func(name string, c counts) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", name, c.cases, c.kills, c.resumed, c.broken, c.effects, c.unknown, c.sends, c.keys)
	}
	var total counts
	seen := map[string]bool{}
	for _, c := range matrixCases() {
		name := c.row()
		if counted, ok := table[name]; ok && !seen[name] {
			line(name, counted)
			total = total.plus(counted)
		}
		seen[name] = true
	}
	line("all", total)
	if err := w.Flush(); err != nil {
		t.Error(err)
	}
	t.Log("\n" + out.String())
	return total
}
