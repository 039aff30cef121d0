package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"github.com/turnpike-gateway/turnpike/bench/load"
	"github.com/turnpike-gateway/turnpike/bench/stats"
)

// store passes requests through while nobody can use the gateway's database:
// every request that asked it for something would have to wait. That the lock
// is one is seen by a request that does ask, and is answered afterwards.
func store(ctx context.Context, r *rig) ([]row, error) {
	_, gateway, err := r.relayTargets(ctx)
	if err != nil {
		return nil, err
	}
	c := relay{}
	plan := load.Plan{Lanes: c.lanes(gateway.addr, r), Count: r.opt.lockedRequests}
	if err := r.asksStore(ctx, gateway); err != nil {
		return nil, err
	}
	lock, err := lockDatabase(filepath.Join(gateway.data, "turnpike.db"))
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := r.asksStore(ctx, gateway); !errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("a request that needs the database was answered while it was locked: %w", errors.Join(err))
	}
	got, err := r.load(ctx, gateway, plan)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, gateway.proc.Tail())
	}
	waited := 0
	if got.Elapsed > time.Second {
		waited = got.Answers // none of them waits for five seconds if there is nothing to wait for
	}
	if err := lock.Close(); err != nil {
		return nil, err
	}
	if err := r.asksStore(ctx, gateway); err != nil {
		return nil, fmt.Errorf("after the lock: %w", err)
	}
	return []row{{
		what: fmt.Sprintf("of %d requests, those that need the store", got.Answers),
		seen: stats.Exactly(float64(max(waited, got.Wrong()))), gate: stats.AtMost(0),
		note: fmt.Sprintf("with the database locked: %s; %s", got.Describe(), got.describe("requests/s")),
	}}, nil
}

// asksStore makes a request that the gateway cannot answer without its
// database, and does not wait for long.
func (r *rig) asksStore(ctx context.Context, gateway target) error {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+gateway.addr+"/api/keys", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+r.clientKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET /api/keys: status %d", resp.StatusCode)
	}
	return nil
}
