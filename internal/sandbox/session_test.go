package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
)

// js is a request to the session name of an org.
func js(org, name, code string) sandbox.Request {
	return sandbox.Request{Org: org, Session: name, Language: sandbox.JavaScript, Code: code}
}

const count = "globalThis.n = (globalThis.n ?? 0) + 1"

func TestSessionsAreApart(t *testing.T) {
	m := newManager(t, sandbox.Options{Drivers: []string{sandbox.QuickJS}})
	for _, c := range []struct{ org, name, want string }{
		{"acme", "a", "1"}, {"acme", "a", "2"}, {"acme", "b", "1"}, {"beta", "a", "1"}, {"acme", "a", "3"}, {"acmea", "", "1"},
	} {
		if got := run(t, m, js(c.org, c.name, count)); got.Result != c.want || got.StateLost {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

func TestTheLeastRecentlyUsedSessionIsEvicted(t *testing.T) {
	m := newManager(t, sandbox.Options{Drivers: []string{sandbox.QuickJS}, MaxSessions: 3, MaxSessionsPerOrg: 2})
	for i, c := range []struct {
		org, name, want string
		lost            bool
		sessions        int
	}{
		{"acme", "a", "1", false, 1},
		{"acme", "b", "1", false, 2},
		{"acme", "a", "2", false, 2},
		{"acme", "c", "1", false, 2}, // evicts b, the org's own
		{"beta", "x", "1", false, 3},
		{"acme", "a", "3", false, 3},
		{"beta", "y", "1", false, 3}, // evicts c of acme: there are as many as the process may have
		{"acme", "a", "4", false, 3},
		{"acme", "b", "1", true, 3},
		{"acme", "b", "2", false, 3}, // it is said once
	} {
		got := run(t, m, js(c.org, c.name, count))
		if got.Result != c.want || got.StateLost != c.lost || m.Sessions() != c.sessions {
			t.Errorf("%d: %+v: %+v, %d sessions", i, c, got, m.Sessions())
		}
	}
}

func TestABusySessionIsWaitedForAndNotEvicted(t *testing.T) {
	m := newManager(t, sandbox.Options{Drivers: []string{sandbox.QuickJS}, MaxSessions: 1})
	var group sync.WaitGroup
	results := make([]string, 8)
	for i := range results {
		group.Go(func() {
			o, err := m.Run(t.Context(), js("acme", "a", "await new Promise((f) => setTimeout(f, 2)); "+count))
			results[i] = fmt.Sprint(o.Result, err)
		})
	}
	group.Wait()
	seen := map[string]bool{}
	for _, r := range results {
		seen[r] = true
	}
	if len(seen) != len(results) || !seen["8<nil>"] {
		t.Errorf("%q", results)
	}
	busy, cancel := context.WithCancel(t.Context())
	defer cancel()
	group.Go(func() {
		if _, err := m.Run(busy, js("acme", "a", "for (;;);")); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	// No other session takes the place of one that is busy, whichever of the two came first.
	other := js("beta", "x", "for (;;);")
	other.Timeout = 200 * time.Millisecond
	if o, err := m.Run(t.Context(), other); !errors.Is(err, sandbox.ErrBusy) && o.Ended == "" {
		t.Error(o, err)
	}
	cancel()
	group.Wait()
	if got := run(t, m, js("beta", "y", "1")); got.Result != "1" {
		t.Errorf("%+v", got)
	}
}

func TestALostStateIsToldOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sandbox")
	o := sandbox.Options{Drivers: []string{sandbox.QuickJS}, Dir: dir}
	m := newManager(t, o)
	run(t, m, js("acme", "a", count))
	run(t, m, js("acme", "b", count))
	late := js("acme", "a", "for (;;);")
	late.Timeout = 100 * time.Millisecond
	if got := run(t, m, late); !strings.Contains(got.Ended, "time limit") || got.StateLost {
		t.Errorf("%+v", got)
	}
	if got := run(t, m, js("acme", "a", count)); got.Result != "1" || !got.StateLost {
		t.Errorf("after a time limit: %+v", got)
	}
	if got := run(t, m, js("acme", "a", count)); got.Result != "2" || got.StateLost {
		t.Errorf("it is told again: %+v", got)
	}
	m.Close()
	if _, err := m.Run(t.Context(), js("acme", "a", "1")); err == nil {
		t.Error("code runs after Close")
	}
	again := newManager(t, o)
	if got := run(t, again, js("acme", "b", count)); got.Result != "1" || !got.StateLost {
		t.Errorf("after a restart: %+v", got)
	}
	again.RemoveOrg("acme")
	if entries, err := os.ReadDir(filepath.Join(dir, "sessions")); err != nil || len(entries) != 0 || again.Sessions() != 0 {
		t.Errorf("of an org that was deleted there is %v, %v", entries, err)
	}
	if got := run(t, again, js("acme", "b", count)); got.StateLost {
		t.Errorf("a new org of that name: %+v", got)
	}
}

// What is removed while a call is in progress is gone when the call is over.
func TestRemovedSessionsEnd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sandbox")
	m := newManager(t, sandbox.Options{Drivers: []string{sandbox.QuickJS}, Dir: dir})
	directories := func() int {
		all, _ := filepath.Glob(filepath.Join(dir, "sessions", "*", "*"))
		return len(all)
	}
	for name, remove := range map[string]func(){
		"the org": func() { m.RemoveOrg("acme") }, "the session": func() { m.RemoveSession("acme", "a") },
	} {
		r := js("acme", "a", count)
		run(t, m, r)
		r.Prepare = func(context.Context, *os.Root) { remove() }
		if got := run(t, m, r); got.Result != "2" {
			t.Errorf("%s: the call in progress: %+v", name, got)
		}
		if m.Sessions() != 0 || directories() != 0 {
			t.Errorf("%s: %d sessions and %d directories", name, m.Sessions(), directories())
		}
	}
	run(t, m, js("acme", "a", count))
	run(t, m, js("acme", "b", count))
	run(t, m, js("beta", "a", count))
	m.RemoveSession("acme", "a")
	for _, c := range []struct{ org, name, want string }{{"acme", "a", "1"}, {"acme", "b", "2"}, {"beta", "a", "2"}} {
		if got := run(t, m, js(c.org, c.name, count)); got.Result != c.want || got.StateLost {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

func TestTheFilesOfOrgsThatDoNotExistAreSwept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sandbox")
	m := newManager(t, sandbox.Options{Drivers: []string{sandbox.QuickJS}, Dir: dir})
	if n, err := m.Sweep(t.Context(), nil); n != 0 || err != nil {
		t.Errorf("without files: %d, %v", n, err)
	}
	run(t, m, js("acme", "a", count))
	for _, c := range []struct {
		exist []string
		err   error
		want  int
	}{{nil, errors.New("the store is closed"), 0}, {[]string{"beta", "acme"}, nil, 0}, {[]string{"beta"}, nil, 1}} {
		if n, err := m.Sweep(t.Context(), func() ([]string, error) { return c.exist, c.err }); n != c.want || !errors.Is(err, c.err) {
			t.Errorf("%+v: %d, %v", c, n, err)
		}
	}
}

func TestWhatIsNotConfiguredRunsNothing(t *testing.T) {
	for _, c := range []struct {
		drivers  []string
		language sandbox.Language
	}{{nil, sandbox.Python}, {nil, sandbox.JavaScript}, {[]string{sandbox.QuickJS}, sandbox.Python}, {[]string{sandbox.QuickJS}, "perl"}} {
		m := newManager(t, sandbox.Options{Drivers: c.drivers})
		if o, err := m.Run(t.Context(), sandbox.Request{Org: "acme", Session: "a", Language: c.language, Code: "1"}); !errors.Is(err, sandbox.ErrNotConfigured) {
			t.Errorf("%+v: %+v, %v", c, o, err)
		}
	}
	for _, drivers := range [][]string{{"docker"}, {sandbox.Auto, sandbox.QuickJS}} {
		if m, err := sandbox.New(t.Context(), sandbox.Options{Drivers: drivers}); err == nil {
			m.Close()
			t.Errorf("%v is accepted", drivers)
		}
	}
}

// A driver that is named and does not work has no substitute; a program that cannot be its own child is
// one case.
func TestADriverThatDoesNotWorkIsNotReplaced(t *testing.T) {
	for _, program := range [][]string{nil, {"/does/not/exist"}, {"/bin/true"}} {
		m, err := sandbox.New(t.Context(), sandbox.Options{Drivers: []string{sandbox.QuickJS}, Program: program, Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(m.Close)
		var unavailable *sandbox.UnavailableError
		if o, err := m.Run(t.Context(), js("acme", "a", "1")); !errors.As(err, &unavailable) || unavailable.Driver != sandbox.QuickJS || m.Sessions() != 0 {
			t.Errorf("%v: %+v, %v", program, o, err)
		}
	}
	m, err := sandbox.New(t.Context(), sandbox.Options{Drivers: []string{sandbox.Auto}, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if o, err := m.Run(t.Context(), js("acme", "a", "1")); !errors.Is(err, sandbox.ErrNotConfigured) {
		t.Errorf("auto: %+v, %v", o, err)
	}
}

// A session with too many files goes on without them: otherwise each of its calls would end at once. // E13
func TestASessionWithTooManyFilesBeginsAgainWithoutThem(t *testing.T) {
	for _, driver := range append(pythons(), sandbox.QuickJS) {
		t.Run(driver, func(t *testing.T) {
			m := newManager(t, options(t, driver))
			r := python("6*7")
			if driver == sandbox.QuickJS {
				r = js("", "", "6*7")
			}
			run(t, m, r)
			r.Prepare = func(_ context.Context, dir *os.Root) {
				for _, name := range []string{"a", "b", "c"} {
					if err := sparse(dir, name, sandbox.FileSize); err != nil {
						t.Error(err)
					}
				}
			}
			if got := run(t, m, r); !strings.Contains(got.Ended, "larger than 512 MiB together; its next call begins without them") {
				t.Errorf("too many: %+v", got)
			}
			r.Prepare = nil
			if got := run(t, m, r); got.Result != "42" || !got.StateLost {
				t.Errorf("the next call: %+v", got)
			}
		})
	}
}

// Files that the gateway cannot look at end the session, and are removed with it.
func TestPythonThatHidesItsFiles(t *testing.T) {
	const deep = "import os\nfor _ in range(30):\n  os.mkdir('d' * 250); os.chdir('d' * 250)\nopen('f', 'w').write('x')"
	const hidden = "cannot be looked into; its next call begins without them"
	for _, driver := range []string{sandbox.Bwrap, sandbox.Landlock} {
		t.Run(driver, func(t *testing.T) {
			o := options(t, driver)
			m := newManager(t, o)
			for name, code := range map[string]string{
				"deep": deep, "closed": "import os\nos.makedirs('d/d'); open('d/d/f', 'w').write('x'); os.chmod('d/d', 0); os.chmod('d', 0)", "all of it closed": "import os\nopen('f', 'w').write('x'); os.chmod('.', 0)",
			} {
				r := python(code)
				r.Org, r.Session = "acme", name
				got := run(t, m, r)
				if ends := name == "deep" || os.Geteuid() != 0; got.Exit != 0 || strings.Contains(got.Ended, hidden) != ends {
					t.Errorf("%s: %+v", name, got)
				}
				if r.Code = "import os; os.chdir('/')\n6*7"; got.Ended != "" {
					if got := run(t, m, r); got.Result != "42" || !got.StateLost {
						t.Errorf("%s, the next call: %+v", name, got)
					}
				}
				r.Code = code
				m.RemoveSession("acme", name)
				if all, _ := filepath.Glob(filepath.Join(o.Dir, "sessions", "*", "*")); len(all) != 0 {
					t.Errorf("%s: after the session was removed there is %v", name, all)
				}
			}
		})
	}
}
