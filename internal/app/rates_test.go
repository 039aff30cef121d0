package app_test

import (
	"bytes"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// While nothing can be stored, relays are let in for a second and then
// refused; they are let in again when all is stored. Each that was let in has
// its answer and its row in the audit, and the others have reached nobody. // R11
func TestAStoreThatIsBehindClosesTheDoor(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("done")))
	data := t.TempDir()
	d := Manage(MustRunWith(t, data, Site{Upstream: up.URL, Feature: "none"}.Yaml(), Environment(), app.Options{SlowStore: app.SlowStore}))
	db, err := sql.Open("sqlite", filepath.Join(data, app.DatabaseFile)+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	other := func(statement string) {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	letIn := 0
	// askUntil asks until the answer is that one.
	askUntil := func(status int) (a Answer) {
		t.Helper()
		pace := time.NewTicker(25 * time.Millisecond)
		defer pace.Stop()
		for end := time.Now().Add(Patience); time.Now().Before(end); <-pace.C {
			a = d.Post(StreamedQuestion)
			if a.Status == 200 {
				letIn++
				a.Stream(t)
			}
			if a.Status == status {
				return a
			}
		}
		t.Errorf("nobody was answered %d", status)
		return a
	}
	askUntil(200)
	other("BEGIN IMMEDIATE") // nobody else writes now
	began := time.Now()
	a := askUntil(503)
	if took := time.Since(began); took < app.SlowStore || !bytes.Contains(a.Body, []byte("overloaded")) || !bytes.Contains(a.Body, []byte("its store is slow")) {
		t.Errorf("after %v the answer is %s", took, a.Body)
	}
	other("ROLLBACK")
	askUntil(200)
	if n := len(up.Requests()); n != letIn {
		t.Errorf("%d requests have reached the provider, want the %d that were let in", n, letIn)
	}
	rows := 0
	for end := time.Now().Add(Patience); rows != letIn && time.Now().Before(end); {
		rows = len(d.Do("GET", "/api/audit?limit=100", "owner-key", "", 200)["data"].([]any))
	}
	if rows != letIn {
		t.Errorf("%d rows are in the audit, want %d", rows, letIn)
	}
}
