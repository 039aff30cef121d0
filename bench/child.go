package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"

	"github.com/turnpike-gateway/turnpike/bench/fake"
)

// childCommand, followed by a role, makes this binary one of the fake servers.
const childCommand = "child"

// The roles of a child.
const (
	roleUpstream = "upstream" // fake provider of the relay cases
	roleBaseline = "baseline" // reverse proxy in front of upstreamVar
	roleModel    = "model"    // scripted model of the loop
	roleTool     = "tool"     // MCP server of the loop
)

// What a child, or the gateway, reads from its environment.
const (
	providerKeyVar = "BENCH_KEY"
	clientKeyVar   = "BENCH_CLIENT_KEY"
	upstreamVar    = "BENCH_UPSTREAM" // host:port
)

// child serves as role until ctx ends or in, its parent's pipe, does. The
// goroutine that watches in ends with the process at the latest.
func child(ctx context.Context, role string, in io.Reader, out io.Writer) error {
	h, err := handler(role)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in) // whatever ends it, the parent is gone
	}()
	return fake.Serve(ctx, h, out)
}

func handler(role string) (http.Handler, error) {
	key := os.Getenv(providerKeyVar)
	switch role {
	case roleUpstream:
		return fake.Upstream(key), nil
	case roleBaseline:
		upstream := os.Getenv(upstreamVar)
		if upstream == "" {
			return nil, errors.New("the baseline needs an upstream")
		}
		return fake.Baseline(&url.URL{Scheme: "http", Host: upstream}, key), nil
	case roleModel:
		return fake.ScriptedModel(), nil
	case roleTool:
		return fake.SlowTool(), nil
	}
	return nil, fmt.Errorf("no role %q", role)
}
