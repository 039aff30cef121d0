// Package gateway is the whole gateway inside another program: its APIs, management, store and audit log,
// as an http.Handler.
//
//	config, err := gateway.Parse(yaml)
//	if err != nil {
//		return err
//	}
//	gw, err := gateway.New(config)
//	if err != nil {
//		return err
//	}
//	defer gw.Close()
//	http.Handle("/v1/", gw)  // the APIs for applications
//	http.Handle("/api/", gw) // the management API
//	http.Handle("/mcp", gw)  // the tools for MCP clients, with Config.Tools and Config.Resources
//
// The program serves it, with TLS and timeouts of its own, and ends with [Gateway.Shutdown]. A program that only runs agents needs package
// turnpike, and links less.
package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/resource"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Config is the configuration of a gateway: see [Parse]. The zero value is none.
type Config struct {
	parsed *config.Config

	Log *slog.Logger // nil = nothing is logged

	// Tools are Go functions and resources of the program for MCP clients at /mcp, beside the tools of the
	// orgs' MCP servers. All orgs have them, and each key those that its role, tools and read_only allow; a key
	// with a list of servers has none. If it is a [tool.Provider], it is asked on behalf of the key. A call
	// whose function needs an approval is refused. An effect key becomes the idempotency key of the call: no
	// result is kept for it. Nil = none.
	Tools tool.Source

	// Resources are resources of the program for MCP clients at /mcp, as Tools are: their permissions are those of
	// the key, and the caller of a call is the key with its org. Each call is also recorded as audit_log.resource.call in the
	// audit log of the org. New takes copies: what is said of a resource later does not change what clients get.
	Resources []*resource.Resource

	// Fatal is called at most once, when the program should end: the disk did not confirm a write, and
	// the store refuses all others. Nil = it is only logged.
	Fatal func(error)
}

// Parse reads a configuration, as "turnpike serve" reads it from its file. References such as
// env:OPENAI_API_KEY and variables such as TURNPIKE_DATA are those of this process. The keys listen and
// telemetry.metrics_listen have no effect: the program listens. The error names every mistake, with its
// line.
func Parse(yaml string) (Config, error) {
	c, err := config.Parse("gateway.yaml", []byte(yaml), os.LookupEnv)
	if err != nil {
		return Config{}, err
	}
	if len(c.Providers) == 0 {
		return Config{}, errors.New("the configuration has no providers; add one, such as {name: openai, api_key: env:OPENAI_API_KEY}")
	}
	if err := c.LoadRates(); err != nil {
		return Config{}, err
	}
	return Config{parsed: c}, nil
}

// Gateway is a gateway that answers requests.
type Gateway struct {
	app  *app.App
	log  *slog.Logger
	stop context.CancelFunc
	done sync.WaitGroup

	requests context.Context // of all requests; ends with breakOff
	breakOff context.CancelFunc

	once sync.Once
	err  error // of Shutdown, after once
}

var _ http.Handler = (*Gateway)(nil)

// New builds a gateway and takes over the runs that an earlier process has left. Close it.
func New(c Config) (*Gateway, error) {
	if c.parsed == nil {
		return nil, errors.New("the configuration is empty; make one with gateway.Parse")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(context.Background())
	g := &Gateway{stop: stop, log: c.Log}
	g.requests, g.breakOff = context.WithCancel(ctx)
	tools, err := g.tools(c)
	if err != nil {
		stop()
		return nil, err
	}
	a, err := app.New(ctx, c.parsed, app.Options{Env: os.LookupEnv, Log: c.Log, Embedded: true, Tools: tools})
	if err != nil {
		stop()
		return nil, err
	}
	g.app = a
	if err := a.Start(ctx); err != nil {
		a.Close()
		stop()
		return nil, err
	}
	for _, w := range c.parsed.Warnings {
		c.Log.Warn(w)
	}
	g.done.Go(func() {
		select {
		case err := <-a.Fatal():
			c.Log.Error("the database may be inconsistent: the program must end", "error", err)
			if c.Fatal != nil {
				c.Fatal(err)
			}
		case <-ctx.Done():
		}
	})
	return g, nil
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(g.requests, cancel)()
	g.app.Handler().ServeHTTP(w, r.WithContext(ctx))
}

// Shutdown refuses new requests, waits until those in progress have ended or ctx ends, and closes the store. Durable
// runs that need longer go on in the next process. The error is that of ctx, if it ended before the requests: they were
// broken off. It may be called more than once.
func (g *Gateway) Shutdown(ctx context.Context) error {
	g.once.Do(func() {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(g.requests, cancel)() // Close
		defer context.AfterFunc(ctx, g.breakOff)()
		if g.err = g.app.Stop(ctx); g.err == nil {
			g.err = ctx.Err() // all has ended, and some of it was broken off
		}
		g.stop()
		g.done.Wait()
	})
	return g.err
}

// Close breaks off the requests in progress, and closes the store, also while Shutdown waits. Durable runs go on in the
// next process. It may be called more than once, and after Shutdown.
func (g *Gateway) Close() error {
	g.breakOff()
	_ = g.Shutdown(context.Background()) // the error says that requests were broken off
	return nil
}
