package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// profileVar tells the profiled gateway how the names of its files begin.
const profileVar = "BENCH_PROFILE"

// profilePrefix is how the names of the next gateway's profiles begin; empty
// without -profile.
func (r *rig) profilePrefix() string {
	if r.opt.profile == "" {
		return ""
	}
	r.profiles++
	return filepath.Join(r.opt.profile, fmt.Sprintf("%s-%d", r.current, r.profiles))
}

// heapProfile makes a profiled gateway write down its heap as it is now, and
// waits until it has. It does nothing to others.
func (t target) heapProfile(ctx context.Context, name string) error {
	if t.profile == "" {
		return nil
	}
	if err := t.proc.Tell(name); err != nil {
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

// until asks every 20 ms whether something has happened. It fails, saying what
// is missing, after limit, and with the end of ctx.
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
