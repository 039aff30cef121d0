//go:build unix

package crash_test

import (
	"maps"
	"strings"
	"testing"
	"time"
)

// A month later, the runs that have ended are deleted, and what has not ended
// and the audit stay.
func TestFinishedRunsAreDeletedAfterAMonth(t *testing.T) { // L07
	if testing.Short() {
		t.Skip("waits for the minute after which a gateway begins to delete")
	}
	t.Parallel()
	gate := make(chan struct{})
	w := newWorld(t, options{script: func(transcript []message) turn {
		if transcript[0].Content == "slow" {
			return turn{text: []string{"Slow", "ly."}, hold: gate}
		}
		return turn{text: []string{"Done."}}
	}})
	p := w.serve()
	for _, key := range []string{"1", "2", "", ""} {
		if a := w.ask(t.Context(), question{text: "go", key: key}, nil); a.text != "Done." {
			t.Fatalf("answered %+v", a)
		}
	}
	left := make(chan answer, 1)
	go func() { left <- w.ask(t.Context(), question{text: "slow", key: "slow"}, nil) }()
	eventually(t, "a run waits", func() bool { return len(w.provider.transcripts()) == 5 })
	p.kill()
	await(t, "the client of a gateway that was killed", left)

	w.setClock(31 * 24 * time.Hour)
	p = w.serve()
	eventually(t, "the start says that four runs will go", func() bool { // the log is written a moment after the gateway serves
		return strings.Contains(p.output.String(), "finished runs will be deleted (runs.retention_days)\" runs=4 older_than_days=30")
	})
	gone := time.Now().Add(100 * time.Second)
	for counts := w.stateCounts(); len(counts) != 1 || counts["running"] == 0; counts = w.stateCounts() {
		if time.Now().After(gone) {
			t.Fatalf("runs %v, want those that are running", counts)
		}
		if err := pause(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
	}
	close(gate)
	eventually(t, "the run that was under way is complete and stays", func() bool { return maps.Equal(w.stateCounts(), map[string]int{"complete": 1}) })
	p.signal(15)
	await(t, "the end of the gateway", p.ended)
	if said := w.command("audit", "verify"); !strings.Contains(said, ", rows 1 to ") || !strings.Contains(said, ": ok") {
		t.Errorf("audit verify says\n%s", said)
	}
}
