package cli

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/blob/disk"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

func restoreCommand(p Process) *cobra.Command {
	var place dataPlace
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Restore a backup into an empty data directory",
		Long: `Check an archive that "turnpike backup" has written and unpack it into a data
directory, which must be empty or absent.

The backup does not say what its unfinished runs have done since. Each of them
ends as lost, and each call that was started and has no result is recorded as
unknown: no call is made again. Every org with data in the backup gets an audit
row of the kind audit_log.restore.

The configuration and the master key are not in the archive: the gateway needs
the ones that it had. A file master.key may be in the data directory already.
The command names the API keys of the backup that can be used: one that was
revoked since is valid again.`,
		Example: `  turnpike restore --config turnpike.yaml turnpike-2026-01-31.tar`,
		Args:    oneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := place.config(p)
			if err != nil {
				return err
			}
			if c.UsesPostgres() {
				return errors.New("restore: the configuration names a PostgreSQL database, which pg_restore restores; name a data directory with " +
					"--data to restore an archive of SQLite there")
			}
			log, _, flush := newLog(p.Stderr, config.Log{Level: "warn"})
			defer flush()
			r := &restoration{c: c, env: p.Env, log: log, said: p.Stderr}
			if err := r.restore(cmd.Context(), args[0]); err != nil {
				return fmt.Errorf("restore: %w", err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s restored from a backup of %s UTC\n%s ended as lost\n",
				plain(c.Data), r.manifest.CreatedAt.UTC().Format(time.DateTime), counted(r.lost, "unfinished run"))
			r.sayKeys(cmd.OutOrStdout())
			return nil
		},
	}
	place.flags(cmd)
	return cmd
}

// stagingDirectory is where a backup is unpacked and made ready, in the data
// directory. The database is moved out of it last: a gateway never finds one whose
// runs it would go on with.
const stagingDirectory = "restoring"

// restoration is one use of the command.
type restoration struct {
	c    *config.Config
	env  config.Environment
	log  *slog.Logger
	said io.Writer // progress

	manifest *manifest
	lost     int       // runs
	keys     []org.Key // that are active in the backup
	sealed   bool      // the backup has secrets, which a master key has encrypted
}

// shownKeys is how many keys a restore names.
const shownKeys = 200

// sayKeys names the keys that are valid again, and a master key that is missing.
func (r *restoration) sayKeys(out io.Writer) {
	if len(r.keys) > 0 {
		format := "%s of the backup can be used, also those that were revoked or rotated since; revoke these again:\n"
		if len(r.keys) == 1 {
			format = "%s of the backup can be used, also if it was revoked or rotated since; revoke it again then:\n"
		}
		fmt.Fprintf(out, format, counted(len(r.keys), "API key"))
	}
	for i, k := range r.keys {
		if i == shownKeys {
			fmt.Fprintf(out, "  and %d more: turnpike keys list\n", len(r.keys)-i)
			break
		}
		fmt.Fprintf(out, "  org %s: %s (%s, %s)\n", plain(k.Org), plain(k.Name), plain(k.ID), k.Role)
	}
	path := filepath.Join(r.c.Data, app.MasterKeyFile)
	if _, err := os.Stat(path); r.sealed && r.c.MasterKey.IsZero() && errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(out, "The secrets of orgs need the master key: before the start, put your copy of %s there, or set master_key\n",
			plain(path))
	}
}

// restore puts the backup into the data directory. After an error, nothing of it is
// left there.
func (r *restoration) restore(ctx context.Context, file string) (err error) {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(r.c.Data, 0o700); err != nil {
		return err
	}
	if err := r.wantEmpty(); err != nil {
		return err
	}
	lock, err := database.Lock(filepath.Join(r.c.Data, app.DatabaseFile))
	if err != nil {
		return fmt.Errorf("%s: %w", r.c.Data, err)
	}
	defer lock.Close()
	if err := r.wantEmpty(); err != nil { // what was begun before the lock was taken
		return err
	}
	staging := filepath.Join(r.c.Data, stagingDirectory)
	if err := os.Mkdir(staging, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(staging)) }()
	if err := r.unpack(ctx, in, staging); err != nil {
		return err
	}
	if err := r.settle(ctx, staging); err != nil {
		return err
	}
	return r.install(staging)
}

// wantEmpty returns an error unless the backup can be restored into the data
// directory, and its checkpoints into their file.
func (r *restoration) wantEmpty() error {
	entries, err := os.ReadDir(r.c.Data)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch e.Name() {
		case app.DatabaseFile + ".lock", "lost+found": // of an earlier attempt; of a file system
		case app.MasterKeyFile: // put there for the backup
		default:
			return fmt.Errorf("the data directory %s is not empty: it holds %s. Move its files away, or name another directory with --data", r.c.Data, e.Name())
		}
	}
	path := app.CheckpointsPath(r.c)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("the checkpoint file %s exists and belongs to another database. Move it away, or name another file with audit.checkpoints", path))
	}
	return nil
}

// unpack unpacks and checks the archive.
func (r *restoration) unpack(ctx context.Context, in *os.File, staging string) error {
	seen := &meter{}
	defer reportProgress(r.said, "unpacking", fileSize(in.Name()), seen.bytes.Load)()
	var err error
	if r.manifest, err = readBundle(ctx, in, staging, seen); err != nil {
		return err
	}
	if err := database.CheckCopy(ctx, filepath.Join(staging, app.DatabaseFile)); err != nil {
		return fmt.Errorf("the database of the backup %s: %w", in.Name(), err)
	}
	return r.unpackFiles(ctx, staging)
}

// settle ends the unfinished runs of the unpacked database and records the restore.
func (r *restoration) settle(ctx context.Context, staging string) error {
	key, err := r.signingKey(ctx, staging)
	if err != nil {
		return err
	}
	store, err := database.Open(ctx, database.Options{Path: filepath.Join(staging, app.DatabaseFile), Log: r.log})
	if err != nil {
		return err
	}
	err = r.settleStore(ctx, store)
	if err == nil && key != nil {
		err = sign(ctx, store, key, audit.Witness{Path: filepath.Join(staging, app.CheckpointsFile)}, r.log)
	}
	return errors.Join(err, store.Close())
}

func (r *restoration) settleStore(ctx context.Context, store *database.Store) error {
	heads, err := store.AuditHeads(ctx)
	if err != nil {
		return err
	}
	ended, err := loseRuns(ctx, store, r.log)
	if err != nil {
		return err
	}
	rows := map[string]audit.Restore{}
	for _, h := range heads {
		rows[h.Org] = audit.Restore{LastRow: h.Number}
	}
	for _, one := range ended {
		row := rows[one.Org]
		row.RunsLost++
		rows[one.Org] = row
	}
	r.lost = len(ended)
	if err := r.findKeys(ctx, store); err != nil {
		return err
	}
	at := clock.Wall().UnixMilli()
	for _, orgID := range slices.Sorted(maps.Keys(rows)) {
		row := rows[orgID]
		row.BackupAt = r.manifest.CreatedAt.UnixMilli()
		if err := store.Record(ctx, orgID, audit.Entry{Kind: audit.KindRestore, At: at, Body: row}); err != nil {
			return err
		}
	}
	return store.SyncAudit(ctx)
}

// findKeys notes the keys that can be used, and whether there are secrets.
func (r *restoration) findKeys(ctx context.Context, store *database.Store) error {
	now := clock.Wall()
	if err := store.EachOrg(ctx, func(c org.Contents) error {
		r.sealed = r.sealed || len(c.Secrets) > 0
		for _, k := range c.Keys {
			if k.RevokedAt.IsZero() && !k.Expired(now) {
				r.keys = append(r.keys, k)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	webhooks, err := store.AllWebhooks(ctx)
	r.sealed = r.sealed || slices.ContainsFunc(webhooks, func(w org.Webhook) bool { return !w.Declared() })
	return err
}

// signingKey returns the key that the gateway will sign with; nil if it will make
// one.
func (r *restoration) signingKey(ctx context.Context, staging string) (ed25519.PrivateKey, error) {
	key, err := r.c.AuditKey(ctx, secret.NewResolver(r.env))
	if key != nil || err != nil {
		return key, err
	}
	key, err = audit.LoadKey(filepath.Join(staging, app.AuditKeyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return key, err
}

// sign makes a checkpoint at the end of every chain.
func sign(ctx context.Context, store *database.Store, key ed25519.PrivateKey, file audit.Witness, log *slog.Logger) error {
	k := audit.NewKeeper(audit.KeeperOptions{Log: store, Key: key, Now: clock.Wall, Witness: file.Add, Logger: log})
	k.Start()
	return k.Stop(ctx)
}

// stuckAfter is how long the end of the next run may take, before a restore gives up.
const stuckAfter = time.Minute

// loseRuns ends every unfinished run of the store as lost, by the rules by which a
// gateway ends runs, and returns them as they were. No model and no tool is called.
func loseRuns(ctx context.Context, store *database.Store, log *slog.Logger) ([]journal.Summary, error) {
	open, err := store.Unfinished(ctx)
	if err != nil || len(open) == 0 {
		return nil, err
	}
	tools := catalog.New(catalog.Options{Log: log})
	defer tools.Close()
	runner := run.New(run.Options{
		Catalog: tools, Journal: store, Conversations: store, Leases: store, Archive: store, Resources: nothing{}, Build: app.Version(), Log: log,
	})
	defer func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		runner.Close(now, 0)
	}()
	for _, one := range open { // before Start, so that none of them is gone on with
		if err := runner.Lose(ctx, one.Org, one.RunID, "turnpike restore"); err != nil {
			return nil, err
		}
	}
	if err := runner.Open(ctx); err != nil {
		return nil, err
	}
	return open, awaitEnd(ctx, store)
}

// awaitEnd returns when the store has no unfinished run.
func awaitEnd(ctx context.Context, store *database.Store) error {
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	left, since := -1, time.Now()
	for {
		open, err := store.Unfinished(ctx)
		if err != nil || len(open) == 0 {
			return err
		}
		if len(open) != left {
			left, since = len(open), time.Now()
		}
		if time.Since(since) > stuckAfter {
			return fmt.Errorf("%s could not be ended, for example run %s of org %s", counted(left, "run"), open[0].RunID, open[0].Org)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// nothing has no models and no tools.
type nothing struct{}

// For implements run.Resources.
func (nothing) For(context.Context, *loop.Accepted) ([]route.Target, []catalog.Server, error) {
	return nil, nil, fault.New(fault.Unavailable, "restoring", "a restore continues no runs")
}

// install moves the files to their places, the database last. After an error, none
// is there.
func (r *restoration) install(staging string) (err error) {
	if _, err := os.Lstat(filepath.Join(staging, app.DatabaseFile+"-wal")); err == nil {
		return errors.New("the database could not be closed")
	}
	var made []string
	defer func() {
		for _, path := range made {
			if err != nil {
				err = errors.Join(err, os.RemoveAll(path))
			}
		}
	}()
	if path, err := r.installFiles(staging); err != nil {
		return err
	} else if path != "" {
		made = append(made, path)
	}
	if path, err := r.installCheckpoints(filepath.Join(staging, app.CheckpointsFile)); err != nil {
		return err
	} else if path != "" {
		made = append(made, path)
	}
	for _, name := range []string{app.AuditKeyFile, app.DatabaseFile} {
		path := filepath.Join(r.c.Data, name)
		err := os.Rename(filepath.Join(staging, name), path)
		if errors.Is(err, fs.ErrNotExist) && name != app.DatabaseFile {
			continue
		}
		if err != nil {
			return err
		}
		made = append(made, path)
		if err := syncDirectory(r.c.Data); err != nil {
			return err
		}
	}
	return nil
}

// unpackFiles unpacks the files of buckets, if the backup has any.
func (r *restoration) unpackFiles(ctx context.Context, staging string) error {
	in, err := os.Open(filepath.Join(staging, filesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := disk.Extract(ctx, in, filepath.Join(staging, app.FilesDirectory)); err != nil {
		return fmt.Errorf("the files of buckets: %w", err)
	}
	return nil
}

// installFiles puts the files of buckets into the data directory, and returns that path; empty if there are none.
func (r *restoration) installFiles(staging string) (string, error) {
	path := filepath.Join(r.c.Data, app.FilesDirectory)
	err := os.Rename(filepath.Join(staging, app.FilesDirectory), path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return path, err
}

// installCheckpoints puts the file of checkpoints where the gateway reads it, which
// may be on another disk, and returns that path; empty if there is none.
func (r *restoration) installCheckpoints(from string) (path string, err error) {
	text, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer text.Close()
	path = app.CheckpointsPath(r.c)
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, text)
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close(), syncDirectory(filepath.Dir(path))); err != nil {
		return "", errors.Join(err, os.Remove(path))
	}
	return path, nil
}
