//go:build unix

package crash_test

import (
	"maps"
	"net/http"
	"slices"
	"testing"
)

// hanging is a model that begins to answer and then says nothing more. Words
// that ask for it get an answer at once.
func hanging(transcript []message) turn {
	if transcript[len(transcript)-1].Content == "Be quick." {
		return turn{text: []string{"Quick."}}
	}
	return turn{text: []string{"Well, ", "at last."}, hold: make(chan struct{})}
}

// A slot is an unexpired lease: what a crash leaves behind holds none.
func TestAKilledGatewayLeavesNoSlotTaken(t *testing.T) { // B07
	t.Parallel()
	w := newWorld(t, options{script: hanging, tools: plainTools()})
	p := w.serve()
	answers := make(chan answer)
	const slots = 16 // the default
	for range slots + 1 {
		go func() { answers <- w.ask(t.Context(), question{text: "Take your time."}, nil) }()
	}
	refused := await(t, "the refusal of one run too many", answers)
	if refused.status != http.StatusTooManyRequests || refused.code != "concurrency_limit" || refused.after != 60 || refused.retry != "60" {
		t.Errorf("one too many got %+v, want 429 and 60 s", refused)
	}
	eventually(t, "all the others run", func() bool { return len(w.provider.transcripts()) == slots })
	if got, want := w.stateCounts(), map[string]int{"running": slots}; !maps.Equal(got, want) {
		t.Errorf("runs %v, want %v", got, want)
	}
	p.kill()
	for range slots {
		if a := await(t, "the end of a run", answers); a.status != 0 {
			t.Errorf("a client of a gateway that was killed got %+v", a)
		}
	}
	w.start("")
	// The new process holds the slots itself for the moment in which it ends the runs.
	eventually(t, "what was lost is recorded", func() bool { return w.stateCounts()["lost"] == slots })
	if a := <-w.insist(question{text: "Be quick."}, nil); a.text != "Quick." || len(slices.DeleteFunc(a.before, unreachable)) > 0 {
		t.Errorf("after the restart: %+v", a)
	}
	want := map[string]int{"lost": slots, "complete": 1}
	eventually(t, "what was lost is recorded", func() bool { return maps.Equal(w.stateCounts(), want) })
}

// unreachable reports whether nobody answered.
func unreachable(a answer) bool { return a.status == 0 }
