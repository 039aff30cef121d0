//go:build unix

package crash_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A gateway whose database is damaged says so and what is damaged, takes no work,
// and lives on.
func TestADamagedDatabaseIsNamedAndTakesNoWork(t *testing.T) { // C19
	t.Parallel()
	w := newWorld(t, options{script: oneAnswer})
	p := w.serve()
	needle := question{text: strings.Repeat("needle ", 3000), key: "1"}
	if a := w.ask(t.Context(), needle, nil); a.text != "Done." {
		t.Fatalf("answered %+v", a)
	}
	p.signal(syscall.SIGTERM)
	await(t, "the end of the gateway", p.ended)

	path := filepath.Join(w.data, "turnpike.db")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	garbage := bytes.Repeat([]byte{0xa5}, page)
	for at := 0; at+page <= len(data); at += page {
		if bytes.Contains(data[at:at+page], []byte("needle needle")) {
			copy(data[at:], garbage)
		}
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}

	p = w.serve()
	if a := w.ask(t.Context(), needle, nil); a.status != http.StatusServiceUnavailable || a.code != "store_unavailable" {
		t.Errorf("a run that cannot be read is answered with %+v", a)
	}
	eventually(t, "the gateway is not ready", func() bool { return w.get("/readyz") == http.StatusServiceUnavailable })
	if a := w.ask(t.Context(), question{text: "another"}, nil); a.status != http.StatusServiceUnavailable || a.code != "store_unavailable" {
		t.Errorf("a new run is answered with %+v", a)
	}
	eventually(t, "the log names the table", func() bool { return strings.Contains(p.output.String(), "tables=shared_lists") })
	if status := w.get("/healthz"); status != http.StatusOK {
		t.Errorf("/healthz says %d", status)
	}
	p.signal(syscall.SIGTERM)
	await(t, "the end of the gateway", p.ended)
	if !p.cmd.ProcessState.Success() {
		t.Errorf("the gateway was stopped and ended with %v", p.cmd.ProcessState)
	}
}
