package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/fake"
	"github.com/turnpike-gateway/turnpike/bench/proc"
)

// rig is the test rig of all cases: the binaries, the keys, a directory for logs
// and data, and the processes of the case that is running.
type rig struct {
	opt     options
	exe     string // this binary, for the children
	gateway string // the gateway binary; "" with -self
	dir     string // removed by close

	providerKey string // what the providers want
	clientKey   string // what the load sends
	secondKey   string // what the load of the second org sends

	group    *proc.Group
	current  string // name of the case that is running
	files    int    // numbers the files in dir
	profiles int    // numbers the profiles of a case

	slower []string // with -against: a line for each case that is slower than before
}

// target is a running server.
type target struct {
	addr string // where it listens, host:port
	proc *proc.Process

	data    string // a gateway's data directory
	profile string // prefix of a profiled gateway's files; "" without -profile
}

func newRig(ctx context.Context, opt options) (*rig, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "turnpike-bench-")
	if err != nil {
		return nil, err
	}
	r := &rig{opt: opt, exe: exe, gateway: opt.gateway, dir: dir,
		providerKey: "provider-" + rand.Text(), clientKey: clientKey(), secondKey: clientKey()}
	if opt.profile == "" && !opt.self {
		r.gateway = cmp.Or(opt.gateway, os.Getenv(programVar))
	}
	if r.gateway == "" && !opt.self {
		r.gateway = filepath.Join(dir, "turnpike")
		if err := r.build(ctx); err != nil {
			_ = r.close() // the build's error is the one that counts
			return nil, err
		}
	}
	return r, nil
}

// clientKey returns a new random key.
func clientKey() string { return "client-" + rand.Text() + rand.Text() }

// build builds the gateway, with -profile the one with a profiler.
func (r *rig) build(ctx context.Context) error {
	dir := "./cmd/turnpike"
	if r.opt.profile != "" {
		dir = "./bench/profiled"
		if err := os.MkdirAll(r.opt.profile, 0o755); err != nil {
			return err
		}
	}
	return proc.Build(ctx, dir, r.gateway)
}

func (r *rig) close() error { return os.RemoveAll(r.dir) }

// child starts this binary in a role, with extra environment variables.
func (r *rig) child(ctx context.Context, role string, extra ...string) (target, error) {
	p, err := r.group.Start(proc.Command{
		Name: role, Path: r.exe, Args: []string{childCommand, role},
		Env: r.environment(extra...), Log: r.file(role + ".log"), PipeOutput: true,
	})
	if err != nil {
		return target{}, err
	}
	addr, err := p.ReadLine(ctx)
	return target{addr: addr, proc: p}, err
}

// file returns a new name in the rig's directory.
func (r *rig) file(name string) string {
	r.files++
	return filepath.Join(r.dir, fmt.Sprintf("%02d-%s", r.files, name))
}

// environment is that of this process, with the keys and without variables that
// configure the gateway: only the configuration file may.
func (r *rig) environment(extra ...string) []string {
	var vars []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TURNPIKE_") {
			vars = append(vars, v)
		}
	}
	vars = append(vars, providerKeyVar+"="+r.providerKey, clientKeyVar+"="+r.clientKey, secondKeyVar+"="+r.secondKey)
	return append(vars, extra...)
}

// childCommand and a role as arguments make this binary one of the fake servers.
const childCommand = "child"

// The roles of a child.
const (
	roleUpstream = "upstream" // fake provider of the relay cases
	rolePausing  = "pausing"  // the same, with streams that pause in the middle
	roleBaseline = "baseline" // reverse proxy in front of upstreamVar
	roleModel    = "model"    // scripted model of the loop
	roleTool     = "tool"     // MCP server of the loop
	roleLoop     = "loop"     // bare loop between upstreamVar, a model, and mcpVar
)

// programVar is an environment variable with the path of a gateway binary that was built before.
const programVar = "TURNPIKE_TEST_PROGRAM"

// Environment variables of the children and of the gateway.
const (
	providerKeyVar = "BENCH_KEY"
	clientKeyVar   = "BENCH_CLIENT_KEY"
	secondKeyVar   = "BENCH_SECOND_KEY"
	upstreamVar    = "BENCH_UPSTREAM" // host:port
	mcpVar         = "BENCH_MCP"      // host:port
)

// child serves as role until ctx or in, the pipe from its parent, ends. The
// goroutine that reads in ends with the process at the latest.
func child(ctx context.Context, role string, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h, err := handler(ctx, role)
	if err != nil {
		return err
	}
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in) // ends when the parent does
	}()
	return fake.Serve(ctx, fake.CountOpen(h), out)
}

func handler(ctx context.Context, role string) (http.Handler, error) {
	key, upstream := os.Getenv(providerKeyVar), os.Getenv(upstreamVar)
	switch role {
	case roleUpstream:
		return fake.Upstream(key), nil
	case rolePausing:
		return fake.PausingUpstream(key), nil
	case roleModel:
		return fake.ScriptedModel(), nil
	case roleTool:
		return fake.SlowTool(), nil
	case roleBaseline, roleLoop:
	default:
		return nil, fmt.Errorf("unknown role %q", role)
	}
	if upstream == "" {
		return nil, fmt.Errorf("role %s needs %s", role, upstreamVar)
	}
	if role == roleBaseline {
		return fake.Baseline(&url.URL{Scheme: "http", Host: upstream}, key), nil
	}
	return fake.NewBareLoop(ctx, "http://"+upstream, "http://"+os.Getenv(mcpVar)+"/mcp")
}

// profileVar is the prefix of the files that the profiled gateway writes.
const profileVar = "BENCH_PROFILE"

// profilePrefix returns the prefix for the profiles of the next gateway; "" without
// -profile.
func (r *rig) profilePrefix() string {
	if r.opt.profile == "" {
		return ""
	}
	r.profiles++
	return filepath.Join(r.opt.profile, fmt.Sprintf("%s-%d", r.current, r.profiles))
}

// heapProfile makes a profiled gateway write a heap profile and waits for the file.
// Without -profile it does nothing.
func (t target) heapProfile(ctx context.Context, name string) error {
	if t.profile == "" {
		return nil
	}
	if err := t.proc.WriteLine(name); err != nil {
		return err
	}
	file := t.profile + "." + name + ".heap.pprof"
	return until(ctx, 30*time.Second, "no profile "+file, func() (bool, error) {
		_, err := os.Stat(file)
		if errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	})
}

// until calls happened every 20 ms until it returns true or an error. After limit
// it fails with the text in missing; it also fails when ctx ends.
func until(ctx context.Context, limit time.Duration, missing string, happened func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s within %v", missing, limit))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if done, err := happened(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}
