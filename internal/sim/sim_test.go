// Package sim plays whole worlds against the real driver: processes that are
// killed, stopped and woken up again, a store that loses requests and answers,
// models and tools that fail, and callers who leave and come back. After every
// step it asks whether the gateway's promises hold.
//
//	clients ─► run.Runner ×3 ─► bus ─► memory store, models, tools ─► book
//	                             ▲                                     │ checks
//	                         scheduler: one call at a time ◄───────────┘
//
// A world is a function of its seed. Everybody who asks for something outside
// waits on the bus; when all of them wait, the scheduler lets one go. Nobody
// shares a source of chance (see world.chance), and time is that of
// testing/synctest. It checks these promises, which its messages name:
//
//	I1   one owner at a time writes a journal, in order, and nothing is lost of it
//	I2   each fact is one that the rules allow in its place
//	I3   a once call takes effect at most once, a keyed call once; results are true
//	I4   no budget is exceeded, and what providers bill is accounted for
//	I5   leases, slots and reservations are released, and processes stop in time
//	I7   every run ends, within its deadline, as its owner or its caller asked
//	I8   streams have one beginning and one end and never contradict the journal
//	I9   an idempotency key is one run
//	I10  every call is recorded before it is sent
//	I11  an org sees and touches nothing of another org
//	I12  each tool call in a transcript is followed by its result
//	I13  a call that needs a person runs only if one approved it, and a decision stands
//	I14  of a run that is to be forgotten nothing is stored unless it waits for a person
//	I15  a model gets the prompt that the journal has, also after a compaction
//	I16  a message to a session is delivered to one run, which gets it once or ends
//	I17  the turns of a session begin in order, each when those before it have ended
//	I19  a turn begins with all that the turns before it have said, once, and its model sees that
//	I20  a rewind takes out turns that have ended, and those after it begin without them
//	I21  a model sees what its client was told of the turns on its line, once and in order, and nothing else
//	I22  what a run adds to is neither rewound nor forked, and what no run adds to is not busy
//	I23  a turn begins with the last summary on its line, and loses nothing behind that
package sim

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/soak"
)

// TestMain gives a world one processor: it does one thing at a time anyway, and
// with two of them the race detector can end in a failed check of its own, when
// two timers of a bubble fire at once (https://go.dev/issue/78156).
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(1)
	goleak.VerifyTestMain(m)
}

// enoughSeeds is how many worlds reach each state that is worth it.
const enoughSeeds = 60

// seeds returns those that once failed, then 1, 2, 3 … up to TURNPIKE_SIM_SEEDS, or the one that
// TURNPIKE_SIM_SEED names. The CI job adds some of the seeds of a soak run.
func seeds(t *testing.T) []uint64 {
	t.Helper()
	if one := one(); one != "" {
		return []uint64{number(t, one)}
	}
	const all = 2000
	n, further := soak.Value(t, enoughSeeds/3, enoughSeeds, all), soak.Value(t, 0, enoughSeeds/3, 0)
	if text := os.Getenv("TURNPIKE_SIM_SEEDS"); text != "" {
		n, further = int(number(t, text)), 0
	}
	list := failedBefore(t)
	for seed := range uint64(n) {
		list = append(list, seed+1)
	}
	if further > 0 {
		var rest []uint64
		for seed := n + 1; seed <= all; seed++ {
			rest = append(rest, uint64(seed))
		}
		list = append(list, soak.Sample(t, rest, further, nil)...)
	}
	return list
}

// one is the seed of the one world that is to be repeated; empty = none.
func one() string { return os.Getenv("TURNPIKE_SIM_SEED") }

func number(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// failedBefore reads the seeds that found a mistake once.
func failedBefore(t *testing.T) []uint64 {
	t.Helper()
	file, err := os.Open("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var list []uint64
	for lines := bufio.NewScanner(file); lines.Scan(); {
		seed, _, _ := strings.Cut(lines.Text(), "#")
		if seed = strings.TrimSpace(seed); seed != "" {
			list = append(list, number(t, seed))
		}
	}
	return list
}

// Crashes at any point, requests that are sent again, and slots. // P01 P24 B07
func TestPromisesAreKept(t *testing.T) {
	sometimes, steps := map[string]int{}, 0
	all := seeds(t)
	for _, seed := range all {
		r := simulate(t, seed, correct)
		if one() != "" {
			t.Log(strings.Join(r.trace, "\n"))
		}
		if r.violation != "" {
			t.Fatal(r)
		}
		steps += r.steps
		for what, n := range r.sometimes {
			sometimes[what] += n
		}
	}
	t.Logf("%d steps", steps)
	for _, what := range slices.Sorted(maps.Keys(sometimes)) {
		t.Logf("%7d × %s", sometimes[what], what)
	}
	if len(all) < enoughSeeds {
		return
	}
	for _, what := range worthReaching() {
		if sometimes[what] == 0 {
			t.Errorf("it never happened that %s: a simulator that does not get there proves nothing about it", what)
		}
	}
}

// worthReaching are the states for which the promises were made.
func worthReaching() (all []string) {
	for _, k := range talkKinds() {
		all = append(all, k.name+": it was forked", k.name+": it was rewound", k.name+": a turn had what those before it have said")
		if k.together {
			all = append(all, k.name+": two turns were taken at the same time")
		}
		if k.rewind != nil {
			all = append(all, k.name+": a change was refused, a run was in progress")
		}
	}
	return append(all, []string{
		"a budget had no room",
		"a call was approved and executed",
		"an answer that was cut off was continued to its end",
		"a call was repeated",
		"a call waited for a person",
		"a clock was set",
		"a compacted run was taken over",
		"a keyed call was sent twice and took effect once",
		"a light run was fenced off",
		"a message was refused: its session was busy",
		"a message was void with its run",
		"a message waited for its turn",
		"a message went into a run",
		"a model did not answer",
		"a paused run was raised",
		"a person decided: approved=false",
		"a person decided: approved=true",
		"a process was of another build",
		"a prompt was made shorter",
		"a prompt was refused as too long",
		"a raised run was completed",
		"a once call became outcome_unknown",
		"a process was stopped in an orderly way",
		"a rewind was refused: its session was busy",
		"a session was rewound",
		"a repeat attached",
		"a repeat was answered",
		"a run ended: cancelled",
		"a run ended: deadline",
		"a run ended: lost",
		"a run that had waited went on",
		"a run that never waited left no texts",
		"a run that waited had its texts",
		"a run was paused at a limit",
		"a run was taken over",
		"a store in trouble was probed",
		"a stream broke after a complete call",
		"a summary failed",
		"a turn had what the turns before it have said",
		"a turn of a talk began with the summary of one before it",
		"a zombie was fenced off",
		"an interrupt ended a turn",
		"no slot was free",
		"nobody decided in time",
		"nobody knew whether a run was accepted",
		"nobody knew whether an append was stored",
		"somebody else wrote in between",
		"two people decided differently",
		"what was set aside was settled for its owner",
		"what was written behind was lost",
	}...)
}

// A simulator that misses a mistake which somebody made on purpose would miss it
// by accident, too.
func TestMutationsAreCaught(t *testing.T) {
	const most = 60
	for _, m := range mutations() {
		t.Run(string(m), func(t *testing.T) {
			for seed := uint64(1); seed <= most; seed++ {
				if r := simulate(t, seed, m); r.violation != "" {
					if !m.shows(r.violation) {
						t.Error("it was noticed by something else than the check of the journal")
					}
					t.Logf("seed %d: %s", seed, r.violation)
					return
				}
			}
			t.Errorf("in %d worlds nobody noticed", most)
		})
	}
}

// Where the order in which goroutines go on is not always the same, a seed may take several
// plays until two are the same. Collections of garbage, which can interrupt a step, wait.
func TestASeedTellsTheSameStoryTwice(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	const most = 100
	for seed := uint64(1); seed <= 10; seed++ {
		first := simulate(t, seed, correct)
		for plays := 2; ; plays++ {
			runtime.GC()
			second := simulate(t, seed, correct)
			if first.hash == second.hash {
				break
			}
			if disturbed := isShuffled() || first.interrupted || second.interrupted; !disturbed || plays == most {
				t.Errorf("seed %d, play %d (disturbed: %t): %s", seed, plays, disturbed, difference(first, second))
				break
			}
			first = second
		}
	}
}

// isShuffled reports whether Go shuffles the goroutines that can go on, as it does under the
// race detector. https://go.dev/src/runtime/proc.go (randomizeScheduler)
func isShuffled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// difference says where the traces of two plays of a seed begin to differ.
func difference(a, b report) string {
	for i := range min(len(a.trace), len(b.trace)) {
		if a.trace[i] != b.trace[i] {
			return "once\n" + a.trace[i] + "\nand once\n" + b.trace[i]
		}
	}
	return fmt.Sprintf("%d steps and %d", a.steps, b.steps)
}
