package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
	"github.com/turnpike-gateway/turnpike/internal/soak"
)

// attack is hostile code. Whatever it does, it must not print the secret or the word FOUND.
type attack struct {
	name, code string
	fails      bool   // the code ends with an error, or the session ends
	ends       string // a part of why the session ends; "" = anything
	drops      bool   // some of its output is dropped
	slow       bool   // its time limit is long, because another limit is tested
	fresh      bool   // it needs a session of its own, because of the files that it leaves
}

// oneOfEachKind are the names of the attacks that always run.
func oneOfEachKind() []string {
	return []string{
		"fork bomb", "3 GB allocation", "endless loop", "hostile regular expression", "endless output", "endless recursion", "file of 300 MB",
		"socket", "DNS", "/etc/passwd", "/proc of the gateway", "the gateway's data", "path escape by link", "kill of the gateway",
		"environment variables of the gateway", "a second session's files",
		"modules by path", "names of the host", "a forged reply", // of JavaScript, which has no network
		"endless writes", "20,000 files", "names of other directories", "writing outside", "settings of the host",
	}
}

// chosenAttacks returns the attacks that run: one of each kind, in the CI job also a tenth of the others. All take minutes.
func chosenAttacks(t *testing.T, all []attack) []attack {
	t.Helper()
	var kinds, others []attack
	for _, a := range all {
		if slices.Contains(oneOfEachKind(), a.name) {
			kinds = append(kinds, a)
		} else {
			others = append(others, a)
		}
	}
	return append(kinds, soak.Sample(t, others, soak.Value(t, 0, (len(others)+9)/10, len(others)), nil)...)
}

// Every kind is in the lists, so that no renamed attack is left out. A fork bomb and an allocation of 3 GB are among them: they end,
// and the host goes on. // E15
func TestThereIsAnAttackOfEachKind(t *testing.T) {
	names := map[string]bool{}
	for _, a := range append(pythonAttacks(sandbox.Wasm), javaScriptAttacks()...) {
		names[a.name] = true
	}
	for _, kind := range oneOfEachKind() {
		if !names[kind] {
			t.Errorf("there is no attack %q", kind)
		}
	}
}

// secret is what no code may see: it is in the environment of the gateway and in its directory.
const secret = "7d1f-the-secret-of-the-gateway"

func newManager(t *testing.T, o sandbox.Options) *sandbox.Manager {
	t.Helper()
	o.Program = sandboxtest.Program(t)
	if o.Dir == "" {
		o.Dir = filepath.Join(t.TempDir(), "sandbox")
	}
	m, err := sandbox.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

// options are those of a Manager with one driver. A test is skipped where the driver does not work.
func options(t *testing.T, driver string) sandbox.Options {
	t.Helper()
	o := sandbox.Options{Drivers: []string{driver}, Dir: filepath.Join(t.TempDir(), "sandbox"), Program: sandboxtest.Program(t), Compiled: sandboxtest.Compiled()}
	if driver == sandbox.Wasm {
		o.PythonWasm = sandboxtest.PythonWasm(t)
	}
	for _, s := range sandbox.Check(t.Context(), o) {
		if s.Driver == driver && s.Err != nil {
			sandboxtest.Skip(t, "%s does not work here: %v", driver, s.Err)
		}
	}
	return o
}

func run(t *testing.T, m *sandbox.Manager, r sandbox.Request) sandbox.Outcome {
	t.Helper()
	if r.Org == "" {
		r.Org, r.Session = "acme", "s"
	}
	o, err := m.Run(t.Context(), r)
	if err != nil {
		t.Fatalf("%.200s: %v", r.Code, err)
	}
	return o
}

// attackAll runs the attacks on a driver. After each of them an honest call of another org works, and
// after all of them the gateway is as it was.
func attackAll(t *testing.T, driver string, language sandbox.Language, limit time.Duration, attacks []attack) {
	t.Setenv("TURNPIKE_TEST_SECRET", secret)
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "turnpike.db"), []byte(secret), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "module.js"), []byte("print('FOUND')"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := options(t, driver)
	o.Dir = filepath.Join(data, "sandbox")
	m := newManager(t, o)
	honest := sandbox.Request{Org: "honest", Session: "s", Language: language, Code: "40 + 2"}
	if language == sandbox.Python {
		honest.Code = "open('secret.txt', 'w').write('" + secret + "') and 40 + 2"
	} else {
		honest.Code = "writeFile('secret.txt', '" + secret + "'); 40 + 2"
	}
	if got := run(t, m, honest); got.Result != "42" || got.Driver != driver {
		t.Fatalf("%+v", got)
	}
	before := figures()
	for _, a := range chosenAttacks(t, attacks) {
		t.Run(a.name, func(t *testing.T) {
			code := strings.NewReplacer("DATA", data, "PID", fmt.Sprint(os.Getpid()), "'FOUND'", "'FOU' + 'ND'").Replace(a.code)
			session := "s"
			if a.fresh || language == sandbox.JavaScript { // values that are left may take all of its memory
				session = a.name
			}
			limit := limit
			if a.slow {
				limit = time.Minute
			}
			began := time.Now()
			got, err := m.Run(t.Context(), sandbox.Request{Org: "attacker", Session: session, Language: language, Code: code, Timeout: limit})
			took := time.Since(began)
			all := got.Stdout + got.Stderr + got.Result
			switch {
			case err != nil:
				t.Fatal(err)
			case strings.Contains(all, secret) || strings.Contains(all, "FOUND") || strings.Contains(got.Result, "FORGED"):
				t.Fatalf("it has succeeded: %.2000s", all)
			case a.slow && strings.Contains(got.Ended, "time limit"):
				t.Errorf("no other limit was reached: %.2000s", fmt.Sprintf("%+v", got))
			case a.fails && got.Exit == 0 && got.Ended == "":
				t.Errorf("no error: %.2000s", fmt.Sprintf("%+v", got))
			case !strings.Contains(got.Ended, a.ends):
				t.Errorf("the session ended because %q, not %q", got.Ended, a.ends)
			case a.drops && got.StdoutDropped == 0:
				t.Error("all of the output was kept")
			case len(all) > 2<<20:
				t.Errorf("%d bytes are kept", len(all))
			}
			t.Logf("%4d ms, exit %d, %s: %.160q", took.Milliseconds(), got.Exit, got.Ended, got.Stderr)
			if got := run(t, m, honest); got.Result != "42" || got.StateLost {
				t.Errorf("an honest call: %+v", got)
			}
		})
	}
	m.RemoveOrg("attacker")
	if n := m.Sessions(); n != 1 {
		t.Errorf("%d sessions", n)
	}
	after := figures()
	t.Logf("before: %+v, after: %+v", before, after)
	if after.goroutines != before.goroutines || after.files > before.files || after.heap > before.heap+4<<20 {
		t.Errorf("before: %+v, after: %+v", before, after)
	}
}

// figure is what the process of the gateway has.
type figure struct {
	heap              uint64
	goroutines, files int
}

func figures() figure {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	f := figure{heap: m.HeapAlloc, goroutines: runtime.NumGoroutine()}
	entries, _ := os.ReadDir("/proc/self/fd") // where there is none, 0 is as good as 0
	f.files = len(entries)
	return f
}
