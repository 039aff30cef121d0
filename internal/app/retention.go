package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/store/sqlite"
)

// When finished runs are deleted. The operator of a first start has read what it
// says by then.
const (
	firstRetention = time.Minute
	retainEvery    = time.Hour
)

// forgetEvery is how often runs are deleted that are to be forgotten.
const forgetEvery = time.Minute

// retention deletes runs whose time is over, until stop. The zero value keeps
// all.
type retention struct {
	cancel context.CancelFunc // nil = not started
	done   sync.WaitGroup
}

// start says how many runs are to go, and deletes them and those that follow.
// No days = only those are deleted that are to be forgotten.
func (r *retention) start(ctx context.Context, store *sqlite.Store, days int, log *slog.Logger) {
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.done.Go(func() { forget(ctx, store, log) })
	if days == 0 {
		return
	}
	limit := func() time.Time { return clock.Wall().Add(-time.Duration(days) * 24 * time.Hour) }
	switch n, err := store.FinishedBefore(ctx, limit()); {
	case err != nil:
		log.Error("cannot count the finished runs to delete", "error", err)
	case n > 0:
		log.Warn("finished runs will be deleted (runs.retention_days)", "runs", n, "older_than_days", days, "in", firstRetention)
	}
	r.done.Go(func() {
		next := time.NewTimer(firstRetention)
		defer next.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-next.C:
			}
			next.Reset(retainEvery)
			n, err := store.DeleteFinished(ctx, limit())
			if n > 0 {
				log.Info("finished runs were deleted (runs.retention_days)", "runs", n, "older_than_days", days)
			}
			if err != nil && ctx.Err() == nil {
				log.Error("finished runs were not deleted", "error", err)
			}
		}
	})
}

// forget deletes the runs whose request or whose response's deletion says so, until ctx ends.
func forget(ctx context.Context, store *sqlite.Store, log *slog.Logger) {
	next := time.NewTicker(forgetEvery)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		if _, err := store.DeleteForgotten(ctx); err != nil && ctx.Err() == nil {
			log.Error("runs that are to be forgotten were not deleted", "error", err)
		}
	}
}

func (r *retention) stop() {
	if r.cancel != nil {
		r.cancel()
		r.done.Wait()
		r.cancel = nil
	}
}
