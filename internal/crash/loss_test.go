//go:build unix

package crash_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// oneAnswer is the model that answers at once.
func oneAnswer([]message) turn { return turn{text: []string{"Done."}} }

// stopped runs a gateway that answers n requests and is then stopped, so that
// its checkpoints are those of all its rows.
func (w *world) stopped(n int) {
	w.Helper()
	p := w.serve()
	for range n {
		if a := w.ask(w.Context(), question{text: "go"}, nil); a.text != "Done." {
			w.Fatalf("answered %+v", a)
		}
	}
	p.signal(syscall.SIGTERM)
	await(w.T, "the end of the gateway", p.ended)
}

// wantRefusal starts a gateway that must end by itself with status 1, and
// returns what it wrote.
func (w *world) wantRefusal() string {
	w.Helper()
	env := append(baseEnv(), "OWNER_KEY="+ownKey, "PROVIDER_KEY="+providerKey)
	p := begin(w.T, env, os.Getenv(binaryVariable), "serve", "--config", w.config)
	await(w.T, "the end of a gateway that should refuse to start", p.ended)
	if status := p.cmd.ProcessState.ExitCode(); status != 1 {
		w.Fatalf("the gateway ended with %v, want status 1:\n%s", p.cmd.ProcessState, p.output)
	}
	return p.output.String()
}

// A database that is missing, or older than the file of checkpoints, is noticed
// at the start.
func TestALostDatabaseIsNoticedAtTheStart(t *testing.T) { // C18 // L01
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, w *world, older string){
		"deleted": func(t *testing.T, w *world, _ string) { remove(t, filepath.Join(w.data, "turnpike.db")) },
		"older":   func(t *testing.T, w *world, older string) { copyFile(t, older, filepath.Join(w.data, "turnpike.db")) },
		"deleted with its key": func(t *testing.T, w *world, _ string) {
			remove(t, filepath.Join(w.data, "turnpike.db"))
			remove(t, filepath.Join(w.data, "audit.key"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, options{script: oneAnswer})
			w.stopped(2)
			older := filepath.Join(t.TempDir(), "older.db")
			copyFile(t, filepath.Join(w.data, "turnpike.db"), older)
			w.stopped(3)

			lose(t, w, older)
			for range 2 { // also the second time, when there is an empty database
				output := w.wantRefusal()
				for _, want := range []string{"has lost data", "a checkpoint of", "UTC has 5", "--accept-data-loss"} {
					if !strings.Contains(output, want) {
						t.Errorf("the refusal does not say %q:\n%s", want, output)
					}
				}
			}

			w.flags = []string{"--accept-data-loss"}
			w.stopped(1)
			w.flags = nil
			w.stopped(1) // the loss was accepted once and for all
			if rows := w.command("audit", "list", "--kind", "audit_log.data_loss"); strings.Count(rows, `"last_lost":5`) != 1 {
				t.Errorf("want one row that says what was lost:\n%s", rows)
			}
			if name == "deleted with its key" {
				return // its checkpoints cannot be verified with another key
			}
			if said := w.command("audit", "verify"); !strings.Contains(said, "to 5 were lost with the database") || !strings.Contains(said, ": ok") {
				t.Errorf("verify says\n%s", said)
			}
		})
	}
}

// A database that is deleted or replaced under a running gateway ends its
// process at once.
func TestALostDatabaseIsNoticedWhileTheGatewayRuns(t *testing.T) { // C18 // L02
	t.Parallel()
	for _, name := range []string{"turnpike.db", "turnpike.db-wal", "turnpike.db-shm", "turnpike.db.lock"} {
		for what, lose := range map[string]func(t *testing.T, path string){
			"deleted": remove,
			"replaced": func(t *testing.T, path string) {
				copyFile(t, path, path+".new")
				if err := os.Rename(path+".new", path); err != nil {
					t.Fatal(err)
				}
			},
		} {
			t.Run(name+" "+what, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, options{script: oneAnswer})
				p := w.serve()
				if a := w.ask(t.Context(), question{text: "go"}, nil); a.text != "Done." {
					t.Fatalf("answered %+v", a)
				}
				lose(t, filepath.Join(w.data, name))
				await(t, "the end of a gateway without a database", p.ended)
				if status := p.cmd.ProcessState.ExitCode(); status != 1 {
					t.Errorf("the gateway ended with %v, want status 1", p.cmd.ProcessState)
				}
				if said := p.output.String(); !strings.Contains(said, "was deleted or replaced while it was in use: "+name+" is") {
					t.Errorf("the gateway does not say what happened:\n%s", said)
				}
			})
		}
	}
}

// What a deleted log held is in the database when the process ends.
func TestADeletedLogLosesNothing(t *testing.T) { // C18
	t.Parallel()
	w := newWorld(t, options{script: oneAnswer})
	p := w.serve()
	a := w.ask(t.Context(), question{text: "go", key: "1"}, nil)
	if a.status != http.StatusOK {
		t.Fatalf("answered %+v", a)
	}
	remove(t, filepath.Join(w.data, "turnpike.db-wal"))
	await(t, "the end of the gateway", p.ended)
	w.serve()
	if again := w.ask(t.Context(), question{text: "go", key: "1"}, nil); again.runID != a.runID {
		t.Errorf("the run is lost: %+v, before %+v", again, a)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
