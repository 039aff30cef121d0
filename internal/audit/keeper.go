package audit

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// When a checkpoint is due, from reference/reliability, R13.
const (
	checkRows  = 1000 // rows after the last one
	checkAfter = 60 * time.Second
	lookEvery  = 5 * time.Second
	pruneEvery = time.Hour
)

// Keeper signs checkpoints and removes rows whose time is over.
type Keeper struct {
	o       KeeperOptions
	stop    context.CancelFunc
	done    sync.WaitGroup
	pruned  time.Time
	trouble bool // the last look failed: said once
}

// KeeperOptions are what a Keeper needs. Log, Key and Witness are required.
type KeeperOptions struct {
	Log     Log
	Key     ed25519.PrivateKey
	Witness func(Checkpoint) error // keeps a checkpoint in a second place
	Keep    time.Duration          // how long rows are kept; 0 = for ever
	Logger  *slog.Logger           // nil = discard
	Now     func() time.Time       // nil = time.Now
}

// NewKeeper returns a Keeper that does nothing before Start.
func NewKeeper(o KeeperOptions) *Keeper {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Keeper{o: o}
}

// Start begins to keep, until Stop.
func (k *Keeper) Start() {
	ctx, stop := context.WithCancel(context.Background())
	k.stop = stop
	k.done.Go(func() {
		ticks := time.NewTicker(lookEvery)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			k.look(ctx)
		}
	})
}

// Stop ends the work with a checkpoint at the end of every chain. Rows that are
// recorded later have none until the next start.
func (k *Keeper) Stop(ctx context.Context) error {
	if k.stop == nil {
		return nil
	}
	k.stop()
	k.done.Wait()
	k.stop = nil
	return k.check(ctx, func(h Head) bool { return h.Number > h.Checked })
}

func (k *Keeper) look(ctx context.Context) {
	now := k.o.Now()
	err := k.check(ctx, func(h Head) bool {
		return h.Number-h.Checked >= checkRows || h.Number > h.Checked && passed(time.UnixMilli(h.CheckedAt), now, checkAfter)
	})
	if err == nil && k.o.Keep > 0 && passed(k.pruned, now, pruneEvery) {
		if err = k.prune(ctx, now.Add(-k.o.Keep)); err == nil {
			k.pruned = now
		}
	}
	if err != nil && !k.trouble && ctx.Err() == nil {
		k.o.Logger.Error("audit checkpoints cannot be written", "error", err)
	}
	k.trouble = err != nil
}

// passed reports whether so much time has passed since last. It has not if the wall
// clock was set back to before last, but nobody can say how much has, and it may be
// long until the clock is there again: then it is due as well.
func passed(last, now time.Time, after time.Duration) bool {
	since := now.Sub(last)
	return since >= after || since < 0
}

// check signs the ends of the chains for which one is due.
func (k *Keeper) check(ctx context.Context, due func(Head) bool) error {
	heads, err := k.o.Log.AuditHeads(ctx)
	if err != nil {
		return err
	}
	heads = slices.DeleteFunc(heads, func(h Head) bool { return !due(h) })
	if len(heads) == 0 {
		return nil
	}
	if err := k.o.Log.SyncAudit(ctx); err != nil { // no power failure takes back what the witness has seen
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

// prune removes the rows that are older than before. The last row of a chain
// stays: it says how many there were.
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
		cut := Checkpoint{Org: h.Org, Number: last.Number, Hash: last.Hash, At: k.o.Now().UnixMilli(), Cut: true}.Sign(k.o.Key)
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

// lastBefore returns the last row before the first one that is to be kept; the
// zero Row if there is none. Clocks jump: no row that is to be kept is removed,
// even where a later one is older.
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
