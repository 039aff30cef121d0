package sandbox_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/sandbox/sandboxtest"
)

func TestMain(m *testing.M) { os.Exit(sandboxtest.Main(m)) }

func TestNoGoroutineIsLeft(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t) }) // after those that end the Manager
	m := newManager(t, options(t, "quickjs"))
	run(t, m, js("acme", "a", "1"))
}
