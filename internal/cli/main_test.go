package cli

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/pdf"
	"github.com/turnpike-gateway/turnpike/internal/sqltool"
)

// Tests of commands that need a run, a model or an MCP server are in internal/app, with
// the servers that they need.

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == sandboxChild || os.Args[1] == pdf.Command || os.Args[1] == sqltool.Command) { // the program starts itself
		os.Exit(Main(context.Background(), Process{Args: os.Args[1:]}))
	}
	goleak.VerifyTestMain(m) // O01
}

// noLeaks fails the test when it leaves a goroutine behind. It is called before
// anything is started. // O01
func noLeaks(t *testing.T) {
	t.Helper()
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) })
}

func noEnvironment(string) (string, bool) { return "", false }

// minimalFile is a whole configuration.
const minimalFile = "listen: 127.0.0.1:0\nproviders: [{name: d, kind: demo}]\norgs: [{id: o, keys: [{name: k, key: k, role: owner}]}]\n"

// serveMinimal boots a gateway with minimalFile until the end of the test, or stop.
func serveMinimal(t *testing.T) (url string, stop func() error) {
	t.Helper()
	data := t.TempDir()
	env := func(name string) (string, bool) { return data, name == "TURNPIKE_DATA" }
	c, err := config.Parse("test.yaml", []byte(minimalFile), env)
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.New(t.Context(), c, app.Options{Env: env, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- a.Serve(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		err := <-served
		a.Close()
		return err
	})
	t.Cleanup(func() { _ = stop() })
	return a.URL(), stop
}
