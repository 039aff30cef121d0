package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
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
// No days = only those are deleted that are to be forgotten. The same is done with files, by sweepFiles.
// duty reports whether this process does what all replicas would do otherwise, every time that the interval has passed.
func (r *retention) start(
	ctx context.Context, store *database.Store, sweepFiles func(context.Context), duty func(context.Context, string, time.Duration) bool,
	days int, log *slog.Logger,
) {
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.done.Go(func() {
		repeat(ctx, forgetEvery, forgetEvery, func() {
			if !duty(ctx, "forget", forgetEvery) {
				return
			}
			if _, err := store.DeleteForgotten(ctx); err != nil && ctx.Err() == nil {
				log.Error("runs that are to be forgotten were not deleted", "error", err)
			}
		})
	})
	r.done.Go(func() {
		repeat(ctx, firstRetention, retainEvery, func() {
			if duty(ctx, "files", retainEvery) {
				sweepFiles(ctx)
			}
		})
	})
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
		repeat(ctx, firstRetention, retainEvery, func() {
			if !duty(ctx, "retention", retainEvery) {
				return
			}
			n, err := store.DeleteFinished(ctx, limit())
			if n > 0 {
				log.Info("finished runs were deleted (runs.retention_days)", "runs", n, "older_than_days", days)
			}
			if err != nil && ctx.Err() == nil {
				log.Error("finished runs were not deleted", "error", err)
			}
			err = store.DeleteOrgData(ctx, limit(), func(orgID string, deleted int) {
				log.Info("runs and conversations of a deleted org were deleted (runs.retention_days)", "org", orgID, "deleted", deleted, "older_than_days", days)
			})
			if err != nil && ctx.Err() == nil {
				log.Error("the data of deleted orgs was not deleted", "error", err)
			}
		})
	})
}

// repeat calls do after first, and then every time that the interval has passed, until ctx ends.
func repeat(ctx context.Context, first, every time.Duration, do func()) {
	next := time.NewTimer(first)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
		}
		next.Reset(every)
		do()
	}
}

func (r *retention) stop() {
	if r.cancel != nil {
		r.cancel()
		r.done.Wait()
		r.cancel = nil
	}
}
