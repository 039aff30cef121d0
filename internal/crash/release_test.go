//go:build unix

package crash_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/soak"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// releasesDir holds what each release left behind when it was killed: its data
// directory, with runs that have ended, runs in flight and one conversation of each
// kind, and what its clients were told. One file for each release, and baseline until
// there is one.
//
// To make the file of a release, in a checkout of it (without a release, the name is baseline):
//
//	TURNPIKE_RELEASE=baseline go test ./internal/crash -run TestMakeAReleaseStore -count=1
const releasesDir = "testdata/releases"

// storyFile is what is beside the data directory of a release.
const storyFile = "story.json"

// release is what clients know of a release's store.
type release struct {
	MadeAt int64        `json:"made_at"` // Unix milliseconds
	Runs   []releaseRun `json:"runs"`
	Talks  *talks       `json:"talks"`
}

// releaseRun is one request.
type releaseRun struct {
	Name string          `json:"name"` // of its errand
	Key  string          `json:"key"`  // empty = a light run
	Body json.RawMessage `json:"body"`

	// Ended is what its client was told; nil = the run was in flight.
	Ended *told `json:"ended,omitempty"`
}

// told is an answer as it is stored.
type told struct {
	Status int    `json:"status"`
	Code   string `json:"code,omitempty"`
	RunID  string `json:"run_id"`
	Text   string `json:"text"`
	Reason string `json:"reason"`
	Tokens int    `json:"tokens"`
}

func newTold(a answer) *told { return &told{a.status, a.code, a.runID, a.text, a.reason, a.tokens} }

// The errands of a release's runs. Each has its own number, so that no two runs
// send the same request.
func endedErrands() []string {
	return []string{"answer", "stream", "note", "clients", "fail", "cancelled"}
}

// flyingErrands are those of the 16 durable runs in flight, and of a light one,
// which comes last.
func flyingErrands() []string {
	return []string{
		"model", "model", "model stream", "model stream", "later", "later stream",
		"read", "read stream", "keyed", "once", "once stream", "all", "mixed read", "mixed once",
		"retry", "retry stream", "light",
	}
}

// releaseWorld is a world in which everything that an errand waits for waits for
// the gate.
func releaseWorld(t *testing.T, gate <-chan struct{}, data string) *world {
	t.Helper()
	return newWorld(t, options{script: releaseScript(gate), data: data, runtime: "concurrency: 32", tools: []turnpiketest.Tool{
		{Name: "look", Result: "seen", Gate: gate}, {Name: "order", Result: "ordered", Gate: gate},
		{Name: "send", Result: "sent", Gate: gate}, {Name: "note", Result: "noted"},
	}})
}

func releaseScript(gate <-chan struct{}) script {
	open := func() bool {
		select {
		case <-gate:
			return true
		default:
			return false
		}
	}
	return func(transcript []message) turn {
		if isTalk(transcript) {
			return talk(transcript)
		}
		rounds, heard, err := follow(transcript)
		errand, number, _ := strings.Cut(transcript[0].Content, " #")
		arguments := fmt.Sprintf(`{"n":%q}`, number)
		calls := func(names ...string) turn {
			said := turn{text: []string{"Let me ", "see."}}
			for i, name := range names {
				said.calls = append(said.calls, call{fmt.Sprint("c", i), name, arguments})
			}
			return said
		}
		word, _, _ := strings.Cut(errand, " ")
		switch {
		case err != nil:
			return turn{text: []string{"The transcript is wrong: " + err.Error()}}
		case word == "fail":
			return turn{status: 400}
		case word == "retry" && !open():
			return turn{status: 503, after: 4}
		case word == "model" || word == "light":
			return turn{text: []string{"Forty-", "two."}, hold: gate}
		case word == "later" && rounds == 1:
			return turn{text: []string{"Noted, ", "now."}, hold: gate}
		case rounds > 0:
			return turn{text: []string{"Done: ", strings.Join(heard, ", "), "."}}
		case errand == "mixed read":
			return calls("look", "ask_user")
		case errand == "mixed once":
			return calls("send", "ask_user")
		}
		switch word {
		case "note", "later":
			return calls("note")
		case "clients":
			return calls("note", "ask_user")
		case "read":
			return calls("look")
		case "keyed":
			return calls("order")
		case "once", "cancelled":
			return calls("send")
		case "all":
			return calls("look", "order", "send")
		}
		return turn{text: []string{"Forty-", "two."}}
	}
}

func newReleaseRun(errand string, n int) releaseRun {
	body, _ := json.Marshal(map[string]any{ // strings and booleans
		"model": "m", "stream": strings.Contains(errand, "stream"),
		"messages": []any{map[string]any{"role": "user", "content": fmt.Sprintf("%s #%d", errand, n)}},
		"tools": []any{map[string]any{"type": "function", "function": map[string]any{
			"name": "ask_user", "parameters": map[string]any{"type": "object"},
		}}},
	})
	one := releaseRun{Name: errand, Key: fmt.Sprintf("key-%d", n), Body: body}
	if errand == "light" {
		one.Key = ""
	}
	return one
}

// Runs that every release has begun are gone on with, and those that it
// has ended are told as it told them. // C07 P01
func TestRunsOfEveryReleaseAreGoneOnWith(t *testing.T) {
	for _, file := range releaseFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			w, r := openRelease(t, file)
			w.start("")
			w.wantSettled(r)
			for _, one := range r.Runs {
				w.wantTold(one)
			}
			for id := range w.runs() {
				w.wantFollowed(id)
			}
			w.wantShown(r)
			w.wantContinued(r)
		})
	}
}

// So they are by builds whose limits are others, or whose rules come in
// another order. // C07
func TestOtherBuildsGoOnWithRunsOfEveryRelease(t *testing.T) {
	soak.Require(t, soak.Job, "it builds the gateway twice")
	for name, changes := range map[string][]change{
		"other limits": {
			{"internal/loop/rules.go", "MaxAttempts          = 4", "MaxAttempts          = 1"},
			{"internal/loop/rules.go", "MaxDeadOwners        = 5", "MaxDeadOwners        = 1"},
			{"internal/loop/rules.go", "MaxRetryWaitMS       = 5_000", "MaxRetryWaitMS       = 1"},
			{"internal/policy/progress.go", "DefaultThreshold = 3", "DefaultThreshold = 1"},
			{"internal/budget/budget.go", "DefaultOutput = 8_192", "DefaultOutput = 17"},
			{"internal/loop/attempts.go", "a.AttemptsOnTarget < s.Accepted.Rules.Attempts", "a.AttemptsOnTarget < 1"}, // whatever accepted says
			{"internal/loop/decide.go", "nth >= limits.CallsPerTurn", "nth >= 1"},
		},
		"another order of rules": {
			// The last call of a turn is prepared first, and calls run one after the other.
			{"internal/loop/state.go", "!c.Done {\n\t\t\tkeys = append(keys, c.Key)", "!c.Done {\n\t\t\tkeys = append([]CallKey{c.Key}, keys...)"},
			{"internal/loop/state.go", "len(free) == 0 || s.Accepted.Parallelism == Parallel", "len(free) == 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := buildChanged(t, changes)
			for _, file := range releaseFiles(t) {
				w, r := openRelease(t, file)
				w.program = program
				w.start("")
				w.wantSettled(r)
			}
		})
	}
}

// A build that writes an unknown kind is rolled back. Its runs are set
// aside with one line in the log each, their clients are told, a cancel ends
// one, and the newer build goes on with the rest. // C07
func TestARollbackSetsRunsAside(t *testing.T) {
	soak.Require(t, soak.Job, "it builds the gateway once more")
	t.Parallel()
	newer := buildChanged(t, []change{{"internal/loop/fact.go", `= "call_prepared"`, `= "call_prepared_anew"`}})
	gate := make(chan struct{})
	w := releaseWorld(t, gate, "")
	w.program = newer
	p := w.serve()
	const runs = 12
	all := make([]releaseRun, runs)
	for i := range all {
		all[i] = newReleaseRun("once", i)
		go w.post(t.Context(), all[i].Body, all[i].Key, nil)
	}
	w.program = "" // whose commands cannot decode what the newer build writes
	eventually(t, "every run has prepared its call", func() bool {
		ids := slices.Collect(maps.Keys(w.runs()))
		return len(ids) == runs && !slices.ContainsFunc(ids, func(id string) bool {
			return !strings.Contains(w.command("runs", "show", id), "call_prepared_anew")
		})
	})
	p.kill()

	older := w.serve()
	eventually(t, "all runs are set aside", func() bool { return w.stateCounts()["set_aside"] == runs })
	for _, one := range all {
		if a := w.post(t.Context(), one.Body, one.Key, nil); a.status != 500 || a.code != "journal_unreadable" {
			t.Errorf("a client that repeats its request got %+v", a)
		}
	}
	var ids []string
	for id := range w.runs() {
		ids = append(ids, id)
		if shown := w.command("runs", "show", id); strings.Count(shown, `unknown fact kind: "call_prepared_anew"`) != 2 {
			t.Errorf("runs show does not say why:\n%s", shown)
		}
	}
	w.cancelRun(ids[0])
	eventually(t, "a run is cancelled", func() bool { return w.stateCounts()["cancelled"] == 1 })
	if n := strings.Count(older.output.String(), "run set aside"); n != runs {
		t.Errorf("%d lines in the log, want %d", n, runs)
	}
	older.kill()
	again := w.serve()
	if got := w.stateCounts(); got["set_aside"] != runs-1 || strings.Contains(again.output.String(), "set aside") {
		t.Errorf("after another start of the older build: %v", got)
	}
	again.kill()

	close(gate)
	w.program = newer
	w.serve()
	eventually(t, "the newer build has ended the rest", func() bool { return w.stateCounts()["complete"] == runs-1 })
	seen := map[string]int{}
	for _, c := range w.tools.Calls() {
		if seen[c.Key]++; seen[c.Key] > 1 {
			t.Errorf("a call that must not be repeated was sent %d times", seen[c.Key])
		}
	}
}

// wantSettled waits until no run is under way, and fails the test unless no
// durable run is lost, every call that was started is accounted for, and no call
// that must not be repeated was.
func (w *world) wantSettled(r release) {
	w.Helper()
	durable := len(endedErrands()) + len(flyingErrands()) - 1
	var states map[string]int
	eventually(w.T, "every run has ended", func() bool {
		states = w.stateCounts()
		return states["running"] == 0
	})
	if states["lost"] != 1 || len(r.Runs) != durable+1 { // the light one
		w.Errorf("the runs ended %v, want one that is lost, of %d", states, durable+1)
	}
	for id := range w.runs() {
		story, _ := w.load(id)
		w.wantAccounts(story)
	}
	for _, c := range w.tools.Calls() {
		if c.Tool == "send" || c.Tool == "note" {
			w.Errorf("%s was called again", c.Tool)
		}
	}
}

// wantAccounts fails the test unless the journal is safe and says what became of
// every call.
func (w *world) wantAccounts(story *journal.Story) {
	w.Helper()
	id := story.Summary.RunID
	var state loop.State
	class, keys, open := map[loop.CallKey]tool.Class{}, map[loop.CallKey]string{}, map[loop.CallKey]bool{}
	for _, f := range story.Facts {
		if err := loop.CheckSafety(state, f); err != nil {
			w.Errorf("%s: %v", id, err)
		}
		state = loop.Apply(state, f)
		switch b := f.Body.(type) {
		case loop.CallPrepared:
			class[b.Key] = b.Class
		case loop.CallStarted:
			if b.Attempt > 1 && (class[b.Key] == tool.Once || keys[b.Key] != b.IdemKey) {
				w.Errorf("%s: call %s, %s, was repeated with the keys %q and %q", id, b.Key, class[b.Key], keys[b.Key], b.IdemKey)
			}
			keys[b.Key], open[b.Key] = b.IdemKey, true
		case loop.CallDone:
			delete(open, b.Key)
		}
	}
	if len(open) > 0 || state.Finished == nil {
		w.Errorf("%s: the calls %v are open, and the run ended %+v", id, open, state.Finished)
	}
}

// wantTold fails the test unless a client that repeats its request is told how
// the run ended: as before, where it had.
func (w *world) wantTold(one releaseRun) {
	w.Helper()
	if one.Key == "" {
		return
	}
	got := newTold(w.post(w.Context(), one.Body, one.Key, nil))
	switch {
	case one.Ended != nil && *got != *one.Ended:
		w.Errorf("%s: told %+v, and then %+v", one.Name, *one.Ended, *got)
	case one.Ended == nil && (got.Status != 200 || got.Reason != "stop" && got.Reason != "tool_calls"):
		w.Errorf("%s: told %+v", one.Name, *got)
	}
}

// wantFollowed fails the test unless a run that has ended is shown and followed to its end,
// over HTTP and from the command line, with the same events.
func (w *world) wantFollowed(id string) {
	w.Helper()
	frames, err := w.events(w.Context(), id, "")
	if err != nil || !ended(frames) {
		w.Errorf("%s: followed over HTTP: %v, %q", id, err, frames)
		return
	}
	printed := strings.Split(strings.TrimSpace(w.command("runs", "follow", id, "--json")), "\n")
	if len(printed) != len(frames) {
		w.Errorf("%s: %d events over HTTP, %d from the command line", id, len(frames), len(printed))
	}
	if shown := w.command("runs", "show", id); !strings.Contains(shown, "finished") {
		w.Errorf("%s: shown as\n%s", id, shown)
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
	if want := len(r.Runs) + r.Talks.Runs; len(states) != want {
		w.Errorf("%d runs are shown, want %d", len(states), want)
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

func releaseFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(releasesDir, "*.tar.gz"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no releases in %s: %v", releasesDir, err)
	}
	return files
}

// openRelease returns a world with a copy of a release's store, at a time
// shortly after it was made, in which nothing waits.
func openRelease(t *testing.T, file string) (*world, release) {
	t.Helper()
	dir := t.TempDir()
	unpack(t, file, dir)
	text, err := os.ReadFile(filepath.Join(dir, storyFile))
	if err != nil {
		t.Fatal(err)
	}
	var r release
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	close(gate)
	w := releaseWorld(t, gate, filepath.Join(dir, "data"))
	w.setClock(time.Until(time.UnixMilli(r.MadeAt).Add(time.Minute)))
	return w, r
}

// change is a text that a file of the gateway has instead of another.
type change struct{ file, from, to string }

// buildChanged builds the gateway with changes, and leaves its files as they are.
func buildChanged(t *testing.T, changes []change) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	texts := map[string]string{}
	for _, c := range changes {
		text, ok := texts[c.file]
		if !ok {
			read, err := os.ReadFile(filepath.Join(root, c.file))
			if err != nil {
				t.Fatal(err)
			}
			text = string(read)
		}
		if strings.Count(text, c.from) != 1 {
			t.Fatalf("%s has %q %d times, want once", c.file, c.from, strings.Count(text, c.from))
		}
		texts[c.file] = strings.Replace(text, c.from, c.to, 1)
	}
	replace := map[string]string{}
	for file, text := range texts {
		changed := filepath.Join(dir, fmt.Sprint(len(replace), ".go"))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, file)] = changed
	}
	overlay, _ := json.Marshal(map[string]any{"Replace": replace}) // strings
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "turnpike")
	build(t, root, "-tags", "crashtest", "-ldflags=-s -w", "-overlay", filepath.Join(dir, "overlay.json"),
		"-o", program, "./cmd/turnpike")
	return program
}

// build runs go build in a directory.
func build(t *testing.T, dir string, args ...string) {
	t.Helper()
	ctx, cancel := lifetime(t)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"build"}, args)...)
	cmd.Dir = dir
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building a gateway: %v\n%s", err, output)
	}
}

// TestMakeAReleaseStore makes the file of a release, see releasesDir.
func TestMakeAReleaseStore(t *testing.T) {
	name := os.Getenv("TURNPIKE_RELEASE")
	if name == "" {
		t.Skip("TURNPIKE_RELEASE names no release")
	}
	gate := make(chan struct{})
	w := releaseWorld(t, gate, "")
	var r release
	var p *process
	r.Talks, p = w.beginTalks()
	before := len(w.tools.Calls())
	for i, errand := range endedErrands() {
		one := newReleaseRun(errand, i)
		answers := make(chan answer, 1)
		go func() { answers <- w.post(t.Context(), one.Body, one.Key, nil) }()
		if errand == "cancelled" {
			eventually(t, "a call is under way", func() bool { return len(w.tools.Calls()) == before+3 }) // after two notes
			for id, state := range w.runs() {
				if state == "running" {
					w.cancelRun(id)
				}
			}
		}
		one.Ended = newTold(await(t, "the end of "+errand, answers))
		r.Runs = append(r.Runs, one)
	}
	ended := len(w.provider.transcripts())
	for i, errand := range flyingErrands() {
		one := newReleaseRun(errand, 100+i)
		go w.post(t.Context(), one.Body, one.Key, nil)
		r.Runs = append(r.Runs, one)
	}
	eventually(t, "every run waits", func() bool {
		return len(w.tools.Calls()) == before+3+2+10 && len(w.provider.transcripts()) >= ended+len(flyingErrands())+2 &&
			strings.Count(p.output.String(), "model call failed") == 1+2
	})
	if states := w.stateCounts(); states["running"] != len(flyingErrands()) { // and the failures are on disk
		t.Fatalf("the runs are %v", states)
	}
	p.kill()
	r.MadeAt = time.Now().UnixMilli()
	text, err := json.Marshal(r) // not indented: the bodies stay what they were
	if err != nil {
		t.Fatal(err)
	}
	pack(t, filepath.Join(releasesDir, name+".tar.gz"), w.data, text)
	inFlight(t, filepath.Join(releasesDir, name+".tar.gz"), r.Talks.Runs)
}

// inFlight fails the test unless the runs of a store are in flight as they should
// be, beside runs of conversations, which have ended.
func inFlight(t *testing.T, file string, conversations int) {
	t.Helper()
	dir := t.TempDir()
	unpack(t, file, dir)
	store, err := database.Open(t.Context(), database.Options{Path: filepath.Join(dir, "data", "turnpike.db")})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	runs, err := store.Runs(t.Context(), "default", journal.Query{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]int{}
	for _, s := range runs {
		story, err := store.Load(t.Context(), "default", s.RunID)
		if err != nil {
			t.Fatal(err)
		}
		body := story.Facts[len(story.Facts)-1].Body
		what := string(body.Kind())
		if started, ok := body.(loop.CallStarted); ok {
			state := loop.Fold(story.Facts)
			if c, ok := state.Call(started.Key); ok {
				what += " " + string(c.Prepared.Class)
			}
		}
		last[what]++
	}
	want := map[string]int{"finished": 6 + conversations, "turn_started": 7, "turn_failed": 2, "call_started read": 3, "call_started keyed": 1, "call_started once": 4}
	if fmt.Sprint(last) != fmt.Sprint(want) {
		t.Errorf("the last facts are %v, want %v; make it again", last, want)
	}
}

// pack stores a data directory, without what belongs to a running process, and
// the story of its clients. Of the database it has a copy without free pages and without a -wal, which is a tenth as large.
func pack(t *testing.T, file, data string, story []byte) {
	t.Helper()
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // a level that there is
	a := tar.NewWriter(z)
	put := func(name string, text []byte) {
		err := a.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))})
		if err == nil {
			_, err = a.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(storyFile, story)
	const databaseFile = "turnpike.db"
	reader, err := database.OpenReader(t.Context(), filepath.Join(data, databaseFile))
	if err != nil {
		t.Fatal(err)
	}
	compact := filepath.Join(t.TempDir(), databaseFile)
	if err := errors.Join(reader.CopyTo(t.Context(), compact), reader.Close()); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(data)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		path := filepath.Join(data, e.Name())
		switch {
		case e.Name() == databaseFile:
			path = compact
		case e.IsDir(), strings.HasPrefix(e.Name(), databaseFile):
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		put("data/"+e.Name(), text)
	}
	if err := errors.Join(a.Close(), z.Close(), os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, out.Bytes(), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// unpack writes the files of a release into a directory.
func unpack(t *testing.T, file, dir string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	for a := tar.NewReader(z); ; {
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		var text []byte
		if err == nil {
			text, err = io.ReadAll(a)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.FromSlash(h.Name)), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
