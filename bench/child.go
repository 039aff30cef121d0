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
	roleHolder   = "holder"   // the same, with streams that stop in the middle
	roleBaseline = "baseline" // reverse proxy in front of upstreamVar
	roleModel    = "model"    // scripted model of the loop
	roleTool     = "tool"     // MCP server of the loop
	roleLoop     = "loop"     // bare loop between upstreamVar, a model, and mcpVar
)

// What a child, or the gateway, reads from its environment.
const (
	providerKeyVar  = "BENCH_KEY"
	clientKeyVar    = "BENCH_CLIENT_KEY"
	neighbourKeyVar = "BENCH_NEIGHBOUR_KEY"
	upstreamVar     = "BENCH_UPSTREAM" // host:port
	mcpVar          = "BENCH_MCP"      // host:port
)

// child serves as role until ctx ends or in, its parent's pipe, does. The
// goroutine that watches in ends with the process at the latest.
func child(ctx context.Context, role string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h, err := handler(ctx, role)
	if err != nil {
		return err
	}
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in) // whatever ends it, the parent is gone
	}()
	return fake.Serve(ctx, fake.Counted(h), out)
}

func handler(ctx context.Context, role string) (http.Handler, error) {
	key, upstream := os.Getenv(providerKeyVar), os.Getenv(upstreamVar)
	switch role {
	case roleUpstream:
		return fake.Upstream(key), nil
	case roleHolder:
		return fake.Holder(key), nil
	case roleModel:
		return fake.ScriptedModel(), nil
	case roleTool:
		return fake.SlowTool(), nil
	case roleBaseline, roleLoop:
	default:
		return nil, fmt.Errorf("no role %q", role)
	}
	if upstream == "" {
		return nil, errors.New("the references need an upstream")
	}
	if role == roleBaseline {
		return fake.Baseline(&url.URL{Scheme: "http", Host: upstream}, key), nil
	}
	return fake.NewLoop(ctx, "http://"+upstream, "http://"+os.Getenv(mcpVar)+"/mcp")
}
