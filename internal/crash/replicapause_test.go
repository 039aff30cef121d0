//go:build unix

package crash_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/soak"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// A replica that is paused for longer than its lease is fenced when it wakes: the run was continued by another one, and nothing is
// stored or done twice. It wakes while the run is still in progress there, and after its end. // L09 P02
func TestAPausedReplicaIsFencedWhenItWakes(t *testing.T) {
	t.Parallel()
	type pausing struct {
		held string
		late bool // it wakes when the run is over
	}
	all := []pausing{{"model", false}, {"tool", true}, {"model", true}, {"tool", false}}
	for _, p := range soak.Sample(t, all, 0, func(p pausing) string { return fmt.Sprint(p.late) }) {
		t.Run(fmt.Sprintf("%s late=%v", p.held, p.late), func(t *testing.T) {
			t.Parallel()
			pausedReplica(t, p.held, p.late)
		})
	}
}

func pausedReplica(t *testing.T, held string, late bool) {
	play, tools, release := heldErrand(held)
	defer release()
	r := newReplicated(t, options{script: play, tools: tools, runtime: "max_run_tokens: 100000"}, 2)
	r.held = held
	r.beginAll()
	q := question{text: "Run the errand.", key: "paused-1"}
	got := r.insist(q, nil)
	r.awaitHeld()
	run := r.onlyRun()
	owner, other := r.ownerOf(run)
	owner.process.signal(syscall.SIGSTOP)
	defer owner.process.signal(syscall.SIGCONT)
	stopped := time.Now()
	waitFor(t, patience, "the other replica has the run", func() bool {
		for _, id := range r.owners()[other.id] {
			if id == run {
				return true
			}
		}
		return false
	})
	took := time.Since(stopped)
	over := func() bool { return r.runs()[run] == "complete" }
	if late {
		release()
		eventually(t, "the run is over", over)
	}
	owner.process.signal(syscall.SIGCONT)
	eventually(t, "the woken replica is ready", owner.ready)
	release()
	eventually(t, "the run is over", over)
	in := r.answered(got)
	story, _ := r.load(run)
	before := len(story.Facts)
	counted, fates := r.judge("complete")
	r.wantErrand(q, in, "complete", fates)
	if _, resumed := r.wantOneHistory(run); len(resumed) != 1 || took > takeover {
		t.Errorf("%d owners took the run over, the first after %v", len(resumed), took)
	}
	_ = pause(t.Context(), 2*time.Second) // for what the woken replica may still do
	if story, _ = r.load(run); len(story.Facts) != before {
		t.Errorf("the journal has %d facts, and had %d when the run was over", len(story.Facts), before)
	}
	r.wantNothingHeld()
	t.Logf("taken over after %v; %d facts, %d outcomes unknown, %d once effects", took.Round(time.Millisecond), before,
		counted.unknown, counted.effects)
}

// heldErrand is the errand in which something waits until release is called. See newErrand.
func heldErrand(held string) (script, []turnpiketest.Tool, func()) {
	gate := make(chan struct{})
	tools := toolsOfAll()
	play := errand
	switch held {
	case "tool":
		tools[2].Gate = gate
	case "model":
		play = func(transcript []message) turn {
			said := errand(transcript)
			if len(said.calls) == 1 {
				said.hold = gate
			}
			return said
		}
	}
	closed := false
	return play, tools, func() {
		if !closed {
			closed = true
			close(gate)
		}
	}
}
