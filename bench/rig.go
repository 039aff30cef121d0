package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/turnpike-gateway/turnpike/bench/proc"
)

// rig is what cases are measured with: the binaries, the keys, a directory for
// logs and data, and the processes of the case that is running.
type rig struct {
	opt     options
	exe     string // this binary, for the children
	gateway string // the gateway binary; "" with -self
	dir     string // removed by close

	providerKey  string // what the providers want
	clientKey    string // what the load sends
	neighbourKey string // what the load of the second org sends

	group    *proc.Group
	current  string // name of the case that is running
	started  int    // names logs and data directories
	profiles int    // names profiles
}

// target is a server that was started.
type target struct {
	addr string // where it listens, host:port
	proc *proc.Process

	data    string // a gateway's data directory
	profile string // how the names of a profiled gateway's files begin; "" for others
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
		providerKey: "provider-" + rand.Text(), clientKey: clientKey(), neighbourKey: clientKey()}
	if r.gateway == "" && !opt.self {
		r.gateway = filepath.Join(dir, "turnpike")
		if err := r.build(ctx); err != nil {
			_ = r.close() // the build's error is the one that counts
			return nil, err
		}
	}
	return r, nil
}

// clientKey makes a key as callers have one.
func clientKey() string { return "client-" + rand.Text() + rand.Text() }

// build builds the gateway, with a profiler beside it if one is wanted.
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

// child starts this binary in a role. Its environment is the rig's and extra.
func (r *rig) child(ctx context.Context, role string, extra ...string) (target, error) {
	p, err := r.group.Start(proc.Command{
		Name: role, Path: r.exe, Args: []string{childCommand, role},
		Env: r.environment(extra...), Log: r.file(role + ".log"), Speaks: true,
	})
	if err != nil {
		return target{}, err
	}
	addr, err := p.Line(ctx)
	return target{addr: addr, proc: p}, err
}

// file returns a new name in the rig's directory.
func (r *rig) file(name string) string {
	r.started++
	return filepath.Join(r.dir, fmt.Sprintf("%02d-%s", r.started, name))
}

// environment is this process's, without what would configure the gateway
// behind its configuration file, and with the keys.
func (r *rig) environment(extra ...string) []string {
	var vars []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TURNPIKE_") {
			vars = append(vars, v)
		}
	}
	vars = append(vars, providerKeyVar+"="+r.providerKey, clientKeyVar+"="+r.clientKey, neighbourKeyVar+"="+r.neighbourKey)
	return append(vars, extra...)
}
