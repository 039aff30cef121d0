//go:build unix

package crash_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// steps are how far ahead the wall clock is set, one after the other.
func steps() []time.Duration {
	return []time.Duration{time.Minute, -10 * time.Minute, time.Hour, 0}
}

// newClockWorld makes a world whose model waits for the gate with most answers.
func newClockWorld(t *testing.T, gate <-chan struct{}) *world {
	t.Helper()
	return newWorld(t, options{
		runtime: "concurrency: 64, deadline: 600s",
		script:  func(transcript []message) turn { return patient(transcript, gate) },
		tools:   []turnpiketest.Tool{{Name: "send", Result: "sent", Gate: gate}},
	})
}

// The wall clock of a running gateway is set ahead and back. No run is
// taken from it, no deadline passes, and no fact is dated before the one before it. // P01 R17
func TestAStepOfTheClockTakesNoRunAway(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	w := newClockWorld(t, gate)
	p := w.serve()
	const light, durable = 12, 4
	answers := make(chan answer, light)
	for range light {
		go func() { answers <- w.ask(t.Context(), question{text: "model"}, nil) }()
	}
	var insisting []<-chan insistence
	for i := range durable {
		insisting = append(insisting, w.insist(question{text: "model", key: fmt.Sprint("key ", i)}, nil))
	}
	eventually(t, "all the runs wait", func() bool { return len(w.provider.transcripts()) == light+durable })
	for _, ahead := range steps() {
		w.setClock(ahead)
		if a := w.ask(t.Context(), question{text: "quick"}, nil); a.text != "Quick." {
			t.Errorf("a run that began %v ahead: %+v", ahead, a)
		}
		if err := pause(t.Context(), 2500*time.Millisecond); err != nil { // two rounds of claims
			t.Fatal(err)
		}
	}
	close(gate)
	for range light {
		if a := await(t, "the end of a light run", answers); a.text != "Slowly." {
			t.Errorf("a light run was answered with %+v", a)
		}
	}
	for _, got := range insisting {
		if in := w.answered(got); in.text != "Slowly." {
			t.Errorf("a durable run was answered with %+v", in.answer)
		}
	}
	if got, want := w.stateCounts(), map[string]int{"complete": light + durable + len(steps())}; !maps.Equal(got, want) {
		t.Errorf("runs %v, want %v", got, want)
	}
	if strings.Contains(p.output.String(), "run goes on") {
		t.Error("the gateway has taken over runs of its own")
	}
	w.wantDatesInOrder()
}

// The wall clock was set back, or ahead, while no gateway ran. Runs go on
// with the deadline that they had, and no fact is dated before the one before it. // P01 R17
func TestARunGoesOnAfterTheClockWasSetWhileTheGatewayWasDown(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-10 * time.Minute, time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			gate := make(chan struct{})
			w := newClockWorld(t, gate)
			p := w.serve()
			model := w.insist(question{text: "model", key: "1"}, nil)
			call := w.insist(question{text: "call", key: "2"}, nil)
			eventually(t, "two runs wait", func() bool { return len(w.provider.transcripts()) == 2 && len(w.tools.Calls()) == 1 })
			p.kill()
			w.setClock(ahead)
			w.serve()
			eventually(t, "the model is asked again", func() bool { return len(w.provider.transcripts()) >= 4 })
			close(gate)
			if in := w.answered(model); in.text != "Slowly." {
				t.Errorf("the run that waited for its model: %+v", in.answer)
			}
			if in := w.answered(call); in.last() != "Result: send unknown." {
				t.Errorf("the run that waited for its tool: %+v", in.answer)
			}
			w.wantDatesInOrder()
		})
	}
}

// wantDatesInOrder fails the test if a fact of a run is dated before the one
// before it, or if a run took longer by its journal than the test.
func (w *world) wantDatesInOrder() {
	w.Helper()
	for _, id := range slices.Sorted(maps.Keys(w.runs())) {
		story, _ := w.load(id)
		for i, f := range story.Facts[1:] {
			if before := story.Facts[i]; f.At < before.At {
				w.Errorf("run %s: %s is dated %d ms before %s", id, f.Body.Kind(), before.At-f.At, before.Body.Kind())
			}
		}
		state := loop.Fold(story.Facts)
		if took := time.Duration(state.At-state.ActiveSince) * time.Millisecond; took > 2*patience {
			w.Errorf("run %s was at work for %v by its journal", id, took)
		}
	}
}
