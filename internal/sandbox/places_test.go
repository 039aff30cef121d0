package sandbox_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
)

// places keeps in memory where sessions have their directories.
type places struct {
	mu  sync.Mutex
	all map[[2]string]string // org and session
}

func (p *places) Take(_ context.Context, org, session, place string) (before string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, p.all[[2]string{org, session}] = p.all[[2]string{org, session}], place
	return before, nil
}

func (p *places) Forget(_ context.Context, org string, sessions []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range sessions {
		delete(p.all, [2]string{org, s})
	}
	return nil
}

func (p *places) At(_ context.Context, place string) (found []sandbox.Placed, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, at := range p.all {
		if at == place {
			found = append(found, sandbox.Placed{Org: k[0], Session: k[1]})
		}
	}
	return found, nil
}

// Two gateways share the orgs, and each has directories of its own. // L05
func TestASessionThatWasElsewhereHasLostItsState(t *testing.T) {
	shared := &places{all: map[[2]string]string{}}
	gateway := func(place string) (*sandbox.Manager, string) {
		dir := filepath.Join(t.TempDir(), "sandbox")
		return newManager(t, sandbox.Options{Drivers: []string{sandbox.QuickJS}, Dir: dir, Places: shared, Place: place}), dir
	}
	a, dirA := gateway("a")
	b, _ := gateway("b")
	const countBoth = `globalThis.had = listFiles().length; writeFile("f" + had, "x"); ` + count + `; n * 10 + had`
	for i, c := range []struct {
		on   *sandbox.Manager
		want string
		lost bool
	}{
		{a, "10", false}, {a, "21", false}, {b, "10", true}, {b, "21", false},
		{a, "10", true}, // not the variables and files of the time before
		{a, "21", false}, {b, "10", true},
	} {
		if got := run(t, c.on, js("acme", "s", countBoth)); got.Result != c.want || got.StateLost != c.lost {
			t.Errorf("%d: %+v", i, got)
		}
	}
	sweep := func(m *sandbox.Manager) {
		t.Helper()
		if _, err := m.Sweep(t.Context(), func() ([]string, error) { return []string{"acme"}, nil }); err != nil {
			t.Error(err)
		}
	}
	directories := func() int {
		found, _ := filepath.Glob(filepath.Join(dirA, "sessions", "*", "*"))
		return len(found)
	}
	run(t, a, js("acme", "own", count))
	a.Close()
	a = newManager(t, sandbox.Options{Drivers: []string{sandbox.QuickJS}, Dir: dirA, Places: shared, Place: "a"})
	if sweep(a); directories() != 1 {
		t.Errorf("there are %d directories; the one of the session that went elsewhere is not needed", directories())
	}
	if got := run(t, a, js("acme", "own", count)); got.Result != "1" || !got.StateLost {
		t.Errorf("after a restart: %+v", got)
	}
	a.Close()
	b.RemoveSession("acme", "own")
	a = newManager(t, sandbox.Options{Drivers: []string{sandbox.QuickJS}, Dir: dirA, Places: shared, Place: "a"})
	if sweep(a); directories() != 0 {
		t.Error("the files of a session that was deleted elsewhere are there")
	}
}
