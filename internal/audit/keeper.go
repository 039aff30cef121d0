package audit

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// When the Keeper works. The first of checkpointRows and checkpointInterval makes a checkpoint
// due.
const (
	checkpointRows     = 1000 // rows since the last checkpoint
	checkpointInterval = 60 * time.Second
	tickInterval       = 5 * time.Second
	pruneInterval      = time.Hour
)

// Keeper signs checkpoints and removes rows that are older than the retention time.
type Keeper struct {
	o       KeeperOptions
	stop    context.CancelFunc
	done    sync.WaitGroup
	pruned  time.Time // last successful prune of rows and sums
	failing bool      // the last look failed; the error was logged
}

// KeeperOptions configure a Keeper. Log, Key and Witness are required.
type KeeperOptions struct {
	Log     Log
	Key     ed25519.PrivateKey
	Witness func(Checkpoint) error // stores a checkpoint in a second place; it must be on disk on return
	Keep    time.Duration          // how long rows are kept; 0 = forever
	Usage   time.Duration          // how long the sums of their usage are kept; 0 = as long as rows
	Logger  *slog.Logger           // nil = discard
	Now     func() time.Time       // nil = time.Now
}

// NewKeeper returns a Keeper. It does nothing before Start.
func NewKeeper(o KeeperOptions) *Keeper {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Keeper{o: o}
}

// Start starts the Keeper's goroutine, which runs until Stop.
func (k *Keeper) Start() {
	ctx, stop := context.WithCancel(context.Background())
	k.stop = stop
	k.done.Go(func() {
		ticks := time.NewTicker(tickInterval)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			k.tick(ctx)
		}
	})
}

// Stop ends the goroutine and signs a checkpoint for every chain that has new rows.
// Rows that are recorded later have no checkpoint until the next start. Stop before
// Start does nothing.
func (k *Keeper) Stop(ctx context.Context) error {
	if k.stop == nil {
		return nil
	}
	k.stop()
	k.done.Wait()
	k.stop = nil
	return k.signDue(ctx, func(h Head) bool { return h.Number > h.Signed })
}

// tick does what is due: checkpoints, and once an hour the retention. It logs the
// first of consecutive failures.
func (k *Keeper) tick(ctx context.Context) {
	now := k.o.Now()
	err := k.signDue(ctx, func(h Head) bool {
		return h.Number-h.Signed >= checkpointRows || h.Number > h.Signed && elapsed(time.UnixMilli(h.SignedAt), now, checkpointInterval)
	})
	if err == nil && elapsed(k.pruned, now, pruneInterval) {
		if err = k.pruneOld(ctx, now); err == nil {
			k.pruned = now
		}
	}
	if err != nil && !k.failing && ctx.Err() == nil {
		k.o.Logger.Error("audit checkpoints cannot be written", "error", err)
	}
	k.failing = err != nil
}

// elapsed reports whether at least after has elapsed since last. It also reports true
// if the wall clock was set back to before last, because the elapsed time is then
// unknown.
func elapsed(last, now time.Time, after time.Duration) bool {
	since := now.Sub(last)
	return since >= after || since < 0
}

// signDue signs a checkpoint for each chain whose head is due. The rows are synced to
// disk first, then the witness gets the checkpoint, then the log.
func (k *Keeper) signDue(ctx context.Context, due func(Head) bool) error {
	heads, err := k.o.Log.AuditHeads(ctx)
	if err != nil {
		return err
	}
	heads = slices.DeleteFunc(heads, func(h Head) bool { return !due(h) })
	if len(heads) == 0 {
		return nil
	}
	if err := k.o.Log.SyncAudit(ctx); err != nil { // no power failure may undo a row that the witness has seen
		return err
	}
	for _, h := range heads {
		c := Checkpoint{Org: h.Org, Number: h.Number, Hash: h.Hash, At: k.o.Now().UnixMilli()}.Sign(k.o.Key)
		if err := k.o.Witness(c); err != nil {
			return fmt.Errorf("org %s: %w", h.Org, err)
		}
		if err := k.o.Log.AddCheckpoint(ctx, c); err != nil {
			return fmt.Errorf("org %s: %w", h.Org, err)
		}
	}
	return nil
}

// pruneOld removes the rows and the sums whose time is over.
func (k *Keeper) pruneOld(ctx context.Context, now time.Time) error {
	if k.o.Keep > 0 {
		if err := k.prune(ctx, now.Add(-k.o.Keep)); err != nil {
			return err
		}
	}
	keep := cmp.Or(k.o.Usage, k.o.Keep)
	if keep == 0 {
		return nil
	}
	heads, err := k.o.Log.AuditHeads(ctx)
	if err != nil {
		return err
	}
	for _, h := range heads {
		n, err := k.o.Log.PruneUsage(ctx, h.Org, DayOf(now.Add(-keep).UnixMilli()))
		if err != nil {
			return fmt.Errorf("org %s: %w", h.Org, err)
		}
		if n > 0 {
			k.o.Logger.Info("expired sums of usage were deleted (audit.usage_retention_days)", "org", h.Org, "sums", n)
		}
	}
	return nil
}

// prune removes the rows that are older than before. It never removes the last row
// of a chain, which holds the highest number.
func (k *Keeper) prune(ctx context.Context, before time.Time) error {
	heads, err := k.o.Log.AuditHeads(ctx)
	if err != nil {
		return err
	}
	for _, h := range heads {
		last, err := k.lastBefore(ctx, h, before.UnixMilli())
		if err != nil {
			return fmt.Errorf("org %s: %w", h.Org, err)
		}
		if last.Number == 0 {
			continue
		}
		if err := k.o.Log.SyncAudit(ctx); err != nil {
			return fmt.Errorf("org %s: %w", h.Org, err)
		}
		cut := Checkpoint{Org: h.Org, Number: last.Number, Hash: last.Hash, At: k.o.Now().UnixMilli(), Pruned: true}.Sign(k.o.Key)
		if err := k.o.Witness(cut); err != nil {
			return fmt.Errorf("org %s: %w", h.Org, err)
		}
		n, err := k.o.Log.PruneAudit(ctx, cut)
		if err != nil {
			return fmt.Errorf("org %s: %w", h.Org, err)
		}
		k.o.Logger.Info("expired audit rows were deleted (audit.retention_days)", "org", h.Org, "rows", n, "up_to", cut.Number)
	}
	return nil
}

// lastBefore returns the row before the first one with At >= before, or the zero
// Row. It stops at that row even if later rows have an earlier time, because a wall
// clock can jump; so it never selects a row that must be kept.
func (k *Keeper) lastBefore(ctx context.Context, h Head, before int64) (last Row, err error) {
	q := Query{Limit: MaxRows}
	for {
		rows, err := k.o.Log.AuditRows(ctx, h.Org, q)
		if err != nil {
			return last, err
		}
		for _, row := range rows {
			if row.At >= before || row.Number >= h.Number {
				return last, nil
			}
			last = row
		}
		if len(rows) == 0 {
			return last, nil
		}
		q.After = last.Number
	}
}
