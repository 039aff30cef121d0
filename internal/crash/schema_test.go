//go:build unix

package crash_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"
)

// schemaFile is the release whose store is migrated to the earlier schemas.
const schemaFile = "0.1-9bf0fae.tar.gz"

const (
	releaseSchema = 7 // of schemaFile, which TestRunsOfEveryReleaseAreGoneOnWith opens as it is
	keysSchema    = 2 // the first with idempotency keys and leases

	migrationsDir = "../store/sqlite/migrations"
)

// A store of every earlier schema is migrated: its finished runs are shown and followed to
// the end, and its durable runs, which were interrupted, complete.
func TestRunsOfEverySchemaAreGoneOnWith(t *testing.T) { // C07 P01 J21
	files, err := filepath.Glob(filepath.Join(migrationsDir, "*.sql"))
	if err != nil || len(files) < 11 {
		t.Fatalf("the migrations are %q, %v", files, err)
	}
	for version := int64(1); version < int64(len(files)); version++ {
		if version == releaseSchema {
			continue
		}
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			t.Parallel()
			w, r := openRelease(t, filepath.Join(releasesDir, schemaFile))
			w.migrateTo(version)
			p := w.start("")
			w.wantSettled(r)
			if want := fmt.Sprintf(`msg="store migrated" from=%d schema=%d `, version, len(files)); !strings.Contains(p.output.String(), want) {
				t.Errorf("the log does not say %q", want)
			}
			w.wantShown(r)
			if version >= keysSchema {
				w.wantContinued(r)
			}
		})
	}
}

// migrateTo changes the schema of the data to an earlier or later version.
func (w *world) migrateTo(version int64) {
	w.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(w.data, "turnpike.db")+"?_foreign_keys=on&_txlock=immediate")
	if err != nil {
		w.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	p, err := goose.NewProvider(goose.DialectSQLite3, db, os.DirFS(migrationsDir),
		goose.WithLogger(goose.NopLogger()), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		w.Fatal(err)
	}
	found, err := p.GetDBVersion(w.Context())
	switch {
	case err != nil:
	case found > version:
		_, err = p.DownTo(w.Context(), version)
	case found < version:
		_, err = p.UpTo(w.Context(), version)
	}
	if err != nil {
		w.Fatalf("migrate to schema %d: %v", version, err)
	}
}

// wantShown fails the test unless every run is shown with the state that the list has, and
// followed to its end: with the same bytes each time, from the beginning and from a
// position in the middle.
func (w *world) wantShown(r release) {
	w.Helper()
	follow := func(id, after string) []frame {
		frames, err := w.events(w.Context(), id, after)
		if err != nil || !ended(frames) {
			w.Fatalf("run %s, followed after %q: %v, %q", id, after, err, frames)
		}
		return frames
	}
	states := w.runs()
	for id, state := range states {
		var detail struct{ State string }
		if err := json.Unmarshal(w.exchange(http.MethodGet, "/v1/runs/"+id, nil, ""), &detail); err != nil || detail.State != state {
			w.Errorf("run %s is shown as %+v, the list says %s: %v", id, detail, state, err)
		}
		frames := follow(id, "")
		if last := frames[len(frames)-1].bytes; !strings.Contains(last, `"`+state+`"`) {
			w.Errorf("run %s ended %s; its last event is %s", id, state, last)
		}
		middle := (len(frames) - 1) / 2
		if again, rest := follow(id, ""), follow(id, frames[middle].id); !slices.Equal(again, frames) || !slices.Equal(rest, frames[middle+1:]) {
			w.Errorf("run %s is followed once with\n%q\nagain with\n%q\nand after event %d with\n%q", id, frames, again, middle, rest)
		}
	}
	if len(states) != len(r.Runs) {
		w.Errorf("%d runs are shown, want %d", len(states), len(r.Runs))
	}
}

// wantContinued fails the test unless a client sends the result of its tool call, and the
// model is told the hidden part of the transcript.
func (w *world) wantContinued(r release) {
	w.Helper()
	at := slices.IndexFunc(r.Runs, func(one releaseRun) bool { return one.Name == "clients" })
	one := r.Runs[at]
	var request map[string]any
	if err := json.Unmarshal(one.Body, &request); err != nil {
		w.Fatal(err)
	}
	var told struct {
		Choices []struct{ Message map[string]any }
	}
	if err := json.Unmarshal(w.exchange(http.MethodPost, "/v1/chat/completions", one.Body, one.Key), &told); err != nil || len(told.Choices) != 1 {
		w.Fatalf("the answer with the call is %+v, %v", told, err)
	}
	message := told.Choices[0].Message
	calls, _ := message["tool_calls"].([]any)
	if len(calls) != 1 {
		w.Fatalf("the answer has the calls %v", calls)
	}
	id, _ := calls[0].(map[string]any)["id"].(string)
	messages, _ := request["messages"].([]any)
	request["messages"] = append(messages, message, map[string]any{"role": "tool", "tool_call_id": id, "content": "42"})
	body, err := json.Marshal(request)
	if err != nil {
		w.Fatal(err)
	}
	got := w.post(w.Context(), body, "", nil)
	if want := "Done: note noted, ask_user 42."; got.text != want {
		w.Errorf("the caller's result of call %s led to %+v, want %q", id, got, want)
	}
}

// exchange sends a request, with a key unless that is empty, and returns the body of the
// answer.
func (w *world) exchange(method, path string, body []byte, key string) []byte {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), method, w.base()+path, bytes.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+ownKey)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := w.http.Do(req)
	if err != nil {
		w.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		w.Fatalf("%s %s: %s, %v\n%s", method, path, resp.Status, err, text)
	}
	return text
}
