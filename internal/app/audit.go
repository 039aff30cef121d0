package app

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/directory"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// auditing keeps the audit log.
type auditing struct {
	store      *database.Store
	directory  *directory.Directory
	config     *config.Config // of the start
	acceptLoss bool
	log        *slog.Logger
	keeper     *audit.Keeper

	recording sync.RWMutex // held for reading by record
	ended     bool         // nothing is recorded any more; guarded by recording
}

// newKeeper returns what signs the ends of the audit's chains, with the key.
func (a *auditing) newKeeper(ctx context.Context, key ed25519.PrivateKey) (*audit.Keeper, error) {
	if err := a.checkLoss(ctx, key); err != nil {
		return nil, err
	}
	return audit.NewKeeper(audit.KeeperOptions{
		Log: a.store, Key: key, Now: clock.Wall, Witness: audit.Witness{Path: CheckpointsPath(a.config)}.Add,
		Keep: days(a.config.Audit.RetentionDays), Usage: days(a.config.Audit.UsageDays), Logger: a.log,
	}), nil
}

func days(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }

// lastCheckpoint is how long stopKeeper takes at most.
const lastCheckpoint = 5 * time.Second

// stopKeeper signs what was recorded last. A store in trouble is not waited for.
func (a *auditing) stopKeeper() {
	ctx, cancel := context.WithTimeout(context.Background(), lastCheckpoint)
	defer cancel()
	if err := a.keeper.Stop(ctx); err != nil {
		a.log.Warn("the last audit rows have no checkpoint", "error", err)
	}
}

// lossError says that the database is not the one that the file of checkpoints
// speaks of.
type lossError struct {
	database, checkpoints string
	losses                []audit.Loss
}

// Error implements error.
func (e *lossError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s has lost data: it is older than its checkpoints in %s", e.database, e.checkpoints)
	for i, l := range e.losses {
		if i == 5 {
			fmt.Fprintf(&b, "; and %d more orgs", len(e.losses)-i)
			break
		}
		fmt.Fprintf(&b, "; org %s has %d audit rows, a checkpoint of %s UTC has %d",
			l.Org, l.Stored, time.UnixMilli(l.At).UTC().Format(time.DateTime), l.Signed)
	}
	b.WriteString(". Restore the database, or start once with --accept-data-loss to continue without the lost data")
	return b.String()
}

// checkLoss returns a *lossError if the store has fewer audit rows than the file
// of checkpoints speaks of. If the operator accepts that, the audit of each org
// gets a row that says so, and the file a signed mark.
func (a *auditing) checkLoss(ctx context.Context, key ed25519.PrivateKey) error {
	file := audit.Witness{Path: CheckpointsPath(a.config)}
	witness, _, err := file.Read()
	if err != nil {
		if !a.acceptLoss {
			return fmt.Errorf("cannot read the audit checkpoints, which show whether the database has lost data (--accept-data-loss starts anyway): %w", err)
		}
		a.log.Warn("cannot read the audit checkpoints", "file", file.Path, "error", err)
	}
	heads, err := a.store.AuditHeads(ctx)
	if err != nil {
		return err
	}
	losses := audit.Losses(heads, witness, key.Public().(ed25519.PublicKey))
	switch {
	case len(losses) == 0 && a.acceptLoss:
		a.log.Info("no data was lost: --accept-data-loss has no effect")
		return nil
	case len(losses) > 0 && !a.acceptLoss:
		place := filepath.Join(a.config.Data, DatabaseFile)
		if a.config.UsesPostgres() {
			place = "the database"
		}
		return &lossError{place, file.Path, losses}
	}
	for _, l := range losses {
		if err := a.recordLoss(ctx, file, key, l); err != nil {
			return fmt.Errorf("org %s: cannot record the accepted loss: %w", l.Org, err)
		}
	}
	return nil
}

// recordLoss writes the row first: without the mark, the next start asks again.
func (a *auditing) recordLoss(ctx context.Context, file audit.Witness, key ed25519.PrivateKey, l audit.Loss) error {
	at := clock.Wall().UnixMilli()
	body := audit.DataLoss{First: l.Stored + 1, Last: l.Signed, CheckpointAt: l.At}
	if err := a.store.Record(ctx, l.Org, audit.Entry{Kind: audit.KindDataLoss, At: at, Body: body}); err != nil {
		return err
	}
	if err := a.store.SyncAudit(ctx); err != nil {
		return err
	}
	if err := file.Add(audit.Checkpoint{Org: l.Org, Number: l.Stored, Hash: l.Hash, At: at, LossAccepted: true}.Sign(key)); err != nil {
		return err
	}
	a.log.Warn("starting without audit rows and runs that were lost", "org", l.Org, "first_row", body.First, "last_row", body.Last)
	return nil
}

// record is [App.Record].
func (a *auditing) record(ctx context.Context, orgID string, e audit.Entry, now bool) error {
	a.recording.RLock()
	defer a.recording.RUnlock()
	if err := a.recordable(orgID); err != nil {
		return err
	}
	if now {
		return a.store.RecordNow(ctx, orgID, e)
	}
	return a.store.Record(ctx, orgID, e)
}

// recordable is called with recording held for reading.
func (a *auditing) recordable(orgID string) error {
	switch {
	case a.ended:
		return errors.New("the gateway is closed")
	case !a.directory.Has(orgID):
		return fmt.Errorf("the gateway has no org %q", orgID)
	}
	return nil
}

// endRecording waits until what the program records is stored: the rows get the last checkpoint.
func (a *auditing) endRecording() {
	a.recording.Lock()
	defer a.recording.Unlock()
	a.ended = true
}
