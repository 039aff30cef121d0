package postgres

import (
	"context"
	"database/sql"
	"log/slog"
	"time"
)

const (
	waitsEvery = 10 * time.Second       // between two looks at the waits for connections
	slowWait   = 100 * time.Millisecond // the mean wait between two looks from which on the log names it
)

// waits watches how long callers wait for a connection of a pool.
type waits struct {
	log    *slog.Logger
	before sql.DBStats
	slow   bool // the log has said so
}

// watch looks at the pool until ctx ends.
func (w *waits) watch(ctx context.Context, db *sql.DB) {
	ticks := time.NewTicker(waitsEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			w.look(ctx, db.Stats())
		}
	}
}

// look compares the waits since the last look with slowWait. The log has one line when they become slow, and one when they are over.
func (w *waits) look(ctx context.Context, now sql.DBStats) {
	n, waited := now.WaitCount-w.before.WaitCount, now.WaitDuration-w.before.WaitDuration
	w.before = now
	mean := waited / time.Duration(max(1, n))
	switch was := w.slow; {
	case mean > slowWait && !was:
		w.slow = true
		w.log.WarnContext(ctx, "reads wait for a connection to the database: raise postgres.pool, or find out which statements are slow",
			"waits", n, "mean", mean.Round(time.Millisecond), "connections", now.MaxOpenConnections)
	case mean <= slowWait && was:
		w.slow = false
		w.log.InfoContext(ctx, "reads do not wait long for a connection to the database any more")
	}
}

// Waits returns how often, since the start, somebody had to wait for a connection on which the store reads, and for how long in all.
func (s *Store) Waits() (n int64, waited time.Duration) {
	stats := s.DB().Stats()
	return stats.WaitCount, stats.WaitDuration
}
