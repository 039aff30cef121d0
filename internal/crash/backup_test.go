//go:build unix

package crash_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// move restores a backup into another data directory, which the world's next
// gateway serves.
func (w *world) move(archive string) (said string) {
	w.Helper()
	text, err := os.ReadFile(w.config)
	if err != nil {
		w.Fatal(err)
	}
	to := filepath.Join(w.TempDir(), "restored")
	moved := strings.ReplaceAll(string(text), w.data, to)
	if moved == string(text) {
		w.Fatalf("the configuration does not name %s", w.data)
	}
	if err := os.WriteFile(w.config, []byte(moved), 0o600); err != nil {
		w.Fatal(err)
	}
	w.data = to
	return w.command("restore", archive)
}

// stop ends a gateway in order.
func (w *world) stop(p *process) {
	w.Helper()
	p.signal(syscall.SIGTERM)
	await(w.T, "the end of the gateway", p.ended)
}

// A call that must not be repeated is under way in the backup. It completes after
// the backup was taken, and is not made again by the restored gateway.
func TestARestoredRunIsLostAndItsCallsAreUnknown(t *testing.T) { // P01 L01
	t.Parallel()
	w, release := newErrand(t, "tool", "")
	p := w.serve()
	q := question{text: "Run the errand.", key: "errand-1"}
	got := w.insist(q, nil)
	w.awaitHeld()
	archive := filepath.Join(t.TempDir(), "backup.tar")
	w.command("backup", archive)
	release()
	if in := w.answered(got); in.reason != "stop" {
		t.Fatalf("the first gateway answered %+v", in.answer)
	}
	w.stop(p)
	made := len(w.tools.Calls())

	if said := w.move(archive); !strings.Contains(said, "1 unfinished run ended as lost") {
		t.Errorf("restore says\n%s", said)
	}
	if said := w.command("audit", "verify"); !strings.Contains(said, ": ok") {
		t.Errorf("audit verify says\n%s", said)
	}
	if rows := w.command("audit", "list", "--kind", "audit_log.restore"); strings.Count(rows, `"runs_lost":1`) != 1 {
		t.Errorf("want one row of the restore:\n%s", rows)
	}
	p = w.serve() // it finds no loss of data
	for id, state := range w.runs() {
		if state != "lost" {
			t.Errorf("run %s is %s, want lost", id, state)
		}
		story, rows := w.load(id)
		for _, f := range w.fates(story) {
			if len(f.keys) > 0 && f.name == "send" && f.outcome != loop.Unknown {
				t.Errorf("the call of %s is %q, want unknown", f.name, f.outcome)
			}
		}
		unknown := 0
		for _, row := range rows {
			if strings.Contains(string(row.Body), `"tool":"send"`) && strings.Contains(string(row.Body), `"status":"unknown"`) {
				unknown++
			}
		}
		if unknown != 1 {
			t.Errorf("the audit has %d rows of the unknown call, want 1: %v", unknown, rows)
		}
	}
	if a := w.ask(t.Context(), q, nil); a.code != "run_lost" {
		t.Errorf("the key of the lost run is answered %+v", a)
	}
	if n := len(w.tools.Calls()); n != made {
		t.Errorf("the restored gateway made %d calls", n-made)
	}
	w.stop(p)
	if said := w.command("audit", "verify"); !strings.Contains(said, ": ok") {
		t.Errorf("audit verify says, after the restored gateway has served:\n%s", said)
	}
}

// A backup is consistent although clients ask all the time.
func TestABackupUnderLoadIsWhole(t *testing.T) { // L01
	t.Parallel()
	l := &load{
		world: newWorld(t, options{script: numbered, runtime: "concurrency: 64", tools: []turnpiketest.Tool{
			{Name: "look", Result: "seen"}, {Name: "order", Result: "ordered"}, {Name: "send", Result: "sent"},
		}}),
		stop: make(chan struct{}), durable: map[int]insistence{}, light: map[int]answer{},
	}
	p := l.serve()
	for kind := range 6 {
		l.wg.Go(func() { l.client(kind) })
	}
	const copies = 3
	var archives []string
	for i := range copies {
		before := l.begun()
		eventually(t, "the gateway gets something done between two copies", func() bool { return l.begun() > before+5 })
		archives = append(archives, filepath.Join(t.TempDir(), "backup.tar"))
		if said := l.command("backup", archives[i]); !strings.Contains(said, "turnpike.db: ") {
			t.Errorf("backup says\n%s", said)
		}
	}
	close(l.stop)
	l.wg.Wait()
	l.world.stop(p)
	made := len(l.tools.Calls())
	for _, archive := range archives {
		said := l.move(archive)
		if verified := l.command("audit", "verify"); !strings.Contains(verified, ": ok") {
			t.Errorf("audit verify says\n%s", verified)
		}
		counts := l.stateCounts()
		t.Logf("%s%v", said, counts)
		if counts["running"]+counts["waiting"]+counts["set_aside"] > 0 || counts["complete"] == 0 {
			t.Errorf("the restored runs are %v", counts)
		}
		p := l.serve()
		l.world.stop(p)
	}
	if n := len(l.tools.Calls()); n != made {
		t.Errorf("the restored gateways made %d calls", n-made)
	}
}
