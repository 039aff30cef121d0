package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
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

// retention deletes runs and files whose time is over, from start until stop.
type retention struct {
	store   *database.Store
	buckets *buckets
	files   *file.Library
	sandbox *sandbox.Manager
	log     *slog.Logger

	// duty reports whether this process does what all replicas would do otherwise, every time that the interval has passed.
	duty func(ctx context.Context, name string, every time.Duration) bool

	cancel context.CancelFunc // nil = not started
	done   sync.WaitGroup
}

// start says how many runs are to go, and deletes them and those that follow.
// No days = only those are deleted that are to be forgotten. The same is done with files, by sweepFiles.
func (r *retention) start(ctx context.Context, days int) {
	ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.done.Go(func() {
		repeat(ctx, forgetEvery, forgetEvery, func() {
			if !r.duty(ctx, "forget", forgetEvery) {
				return
			}
			if _, err := r.store.DeleteForgotten(ctx); err != nil && ctx.Err() == nil {
				r.log.Error("runs that are to be forgotten were not deleted", "error", err)
			}
		})
	})
	r.done.Go(func() {
		repeat(ctx, firstRetention, retainEvery, func() {
			if r.duty(ctx, "files", retainEvery) {
				r.sweepFiles(ctx)
			}
		})
	})
	if days == 0 {
		return
	}
	limit := func() time.Time { return clock.Wall().Add(-time.Duration(days) * 24 * time.Hour) }
	switch n, err := r.store.FinishedBefore(ctx, limit()); {
	case err != nil:
		r.log.Error("cannot count the finished runs to delete", "error", err)
	case n > 0:
		r.log.Warn("finished runs will be deleted (runs.retention_days)", "runs", n, "older_than_days", days, "in", firstRetention)
	}
	r.done.Go(func() {
		repeat(ctx, firstRetention, retainEvery, func() {
			if !r.duty(ctx, "retention", retainEvery) {
				return
			}
			n, err := r.store.DeleteFinished(ctx, limit())
			if n > 0 {
				r.log.Info("finished runs were deleted (runs.retention_days)", "runs", n, "older_than_days", days)
			}
			if err != nil && ctx.Err() == nil {
				r.log.Error("finished runs were not deleted", "error", err)
			}
			err = r.store.DeleteOrgData(ctx, limit(), func(orgID string, deleted int) {
				r.log.Info("runs and conversations of a deleted org were deleted (runs.retention_days)", "org", orgID, "deleted", deleted, "older_than_days", days)
			})
			if err != nil && ctx.Err() == nil {
				r.log.Error("the data of deleted orgs was not deleted", "error", err)
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

// sweepFiles deletes the files of orgs that do not exist, and those of keys whose time is over.
func (r *retention) sweepFiles(ctx context.Context) {
	r.buckets.sweep(ctx)
	exist := func() ([]string, error) { return r.orgIDs(ctx) }
	switch n, err := r.sandbox.Sweep(ctx, exist); {
	case err != nil && ctx.Err() == nil:
		r.log.Error("the working directories of deleted orgs were not removed; the gateway tries again within the hour", "error", err)
	case n > 0:
		r.log.Info("the working directories of deleted orgs were removed", "orgs", n)
	}
	ids, err := r.orgIDs(ctx)
	if err = errors.Join(err, r.files.Sweep(ctx, ids)); err != nil && ctx.Err() == nil {
		r.log.Error("files that have expired were not deleted; the gateway tries again within the hour", "error", err)
	}
}

// orgIDs returns the ids of all orgs.
func (r *retention) orgIDs(ctx context.Context) ([]string, error) {
	orgs, err := r.store.Orgs(ctx)
	ids := make([]string, len(orgs))
	for i, o := range orgs {
		ids[i] = o.ID
	}
	return ids, err
}
