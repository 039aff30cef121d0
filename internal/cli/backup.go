package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/blob/disk"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// dataPlace says which data directory a command works on.
type dataPlace struct{ file, data string }

func (d *dataPlace) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&d.file, "config", "c", "", "configuration `FILE` (default: turnpike.yaml, if it exists)")
	cmd.Flags().StringVar(&d.data, "data", "", "data `DIRECTORY` (default: data of the configuration)")
}

// config returns the configuration with the data directory that was chosen.
func (d *dataPlace) config(p Process) (*config.Config, error) {
	from := readStore{file: d.file}
	c, err := from.config(p)
	if err != nil {
		return nil, err
	}
	if d.data != "" { // whatever the configuration says of a database
		c.Data, c.Database = d.data, secret.Text{}
	}
	return c, nil
}

func backupCommand(p Process) *cobra.Command {
	var place dataPlace
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write the data of a gateway to a backup archive, also while the gateway runs",
		Long: `Write a tar archive with a copy of the database at one point in time, audit.key
if it is in the data directory, the checkpoints of the audit, and the files of
buckets of the kind disk. The gateway may be running. The archive holds neither
the master key nor the configuration.

The archive can be read by its owner only. It holds transcripts, the hashes of
API keys and the key that signs the audit: keep it as safe as the data directory.

With a PostgreSQL database nothing is copied. The command prints the pg_dump
command that copies the database to FILE, and what is needed beside it, and ends
with the exit status 3.

FILE must not exist. While the copy is made, its directory needs free space for
twice the size of the database and these files.`,
		Example: `  turnpike backup --config turnpike.yaml turnpike-2026-01-31.tar`,
		Args:    oneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := place.config(p)
			if err != nil {
				return err
			}
			if c.UsesPostgres() {
				return explainBackup(cmd.Context(), cmd.OutOrStdout(), p, c, configFile(place.file), args[0])
			}
			m, size, err := backup(cmd.Context(), c, args[0], p.Stderr)
			if err != nil {
				return fmt.Errorf("backup: %w", err)
			}
			out := cmd.OutOrStdout()
			for _, f := range m.Files {
				fmt.Fprintf(out, "%s: %s\n", f.Name, bytesText(f.Size))
			}
			fmt.Fprintf(out, "%s written: %s\n", plain(args[0]), bytesText(size))
			return nil
		},
	}
	place.flags(cmd)
	return cmd
}

// backup writes the archive to path, which must not exist, and returns what it
// holds and its size. It leaves nothing behind after an error.
func backup(ctx context.Context, c *config.Config, path string, said io.Writer) (m *manifest, size int64, err error) {
	store, err := database.OpenReader(ctx, filepath.Join(c.Data, app.DatabaseFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, app.NoData(c.Data)
	}
	if err != nil {
		return nil, 0, err
	}
	defer store.Close()
	if err := mustNotExist(path); err != nil {
		return nil, 0, err
	}
	work, err := os.MkdirTemp(filepath.Dir(path), ".turnpike-backup-") // for the owner only
	if err != nil {
		return nil, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	m = &manifest{Format: bundleFormat, CreatedAt: clock.Wall().UTC().Truncate(time.Millisecond), Build: app.Version()}
	if err := gather(ctx, c, store, work, m, said); err != nil {
		return nil, 0, err
	}
	archive := filepath.Join(work, "archive.tar")
	if size, err = writeArchive(ctx, archive, work, m, said); err != nil {
		return nil, 0, err
	}
	if err := mustNotExist(path); err != nil {
		return nil, 0, err
	}
	if err := os.Rename(archive, path); err != nil {
		return nil, 0, err
	}
	return m, size, syncDirectory(filepath.Dir(path))
}

func mustNotExist(path string) error {
	_, err := os.Lstat(path)
	if err == nil {
		return fmt.Errorf("%s already exists; choose another file name", path)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// gather copies what belongs into the archive to work. The checkpoints come before
// the database: each of them speaks of rows that the database had before. The other
// way round, the database of the archive could seem to have lost rows.
func gather(ctx context.Context, c *config.Config, store *database.Reader, work string, m *manifest, said io.Writer) error {
	for _, f := range []struct{ name, path string }{
		{app.AuditKeyFile, filepath.Join(c.Data, app.AuditKeyFile)}, {app.CheckpointsFile, app.CheckpointsPath(c)},
	} {
		err := copyLines(ctx, f.path, filepath.Join(work, f.name), f.name == app.CheckpointsFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the configuration has the key, or nothing was signed yet
		}
		if err != nil {
			return err
		}
		entry, err := describe(ctx, work, f.name, &meter{})
		if err != nil {
			return err
		}
		m.Files = append(m.Files, entry)
	}
	size, err := store.Size(ctx)
	if err != nil {
		return err
	}
	database := filepath.Join(work, app.DatabaseFile)
	done := reportProgress(said, "copying the database", size, func() int64 { return fileSize(database) })
	err = store.CopyTo(ctx, database)
	done()
	if err != nil {
		return err
	}
	seen := &meter{}
	done = reportProgress(said, "reading the copy", fileSize(database), seen.bytes.Load)
	entry, err := describe(ctx, work, app.DatabaseFile, seen)
	done()
	if err != nil {
		return err
	}
	m.Files = append(m.Files, entry)
	return gatherFiles(ctx, c, work, m, said)
}

// gatherFiles copies the files of buckets on disk to work, if there are any.
func gatherFiles(ctx context.Context, c *config.Config, work string, m *manifest, said io.Writer) error {
	path := filepath.Join(work, filesFile)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	done := reportProgress(said, "copying the files of buckets", 0, func() int64 { return fileSize(path) })
	n, err := disk.Archive(ctx, filepath.Join(c.Data, app.FilesDirectory), file)
	done()
	if err = errors.Join(err, file.Close()); err != nil || n == 0 {
		return err
	}
	entry, err := describe(ctx, work, filesFile, &meter{})
	m.Files = append(m.Files, entry)
	return err
}

// copyLines copies a file for the owner only. Where whole is set, a last line that
// is being written is left out.
func copyLines(ctx context.Context, from, to string, whole bool) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	lines := &lineEnd{}
	if _, err := io.Copy(io.MultiWriter(out, lines), interruptible{ctx, in}); err != nil || !whole {
		return err
	}
	return out.Truncate(lines.end)
}

// lineEnd notes where the last whole line ends.
type lineEnd struct{ read, end int64 }

// Write implements io.Writer.
func (l *lineEnd) Write(p []byte) (int, error) {
	if i := bytes.LastIndexByte(p, '\n'); i >= 0 {
		l.end = l.read + int64(i) + 1
	}
	l.read += int64(len(p))
	return len(p), nil
}

// writeArchive returns the size of the archive, which is on disk then.
func writeArchive(ctx context.Context, path, work string, m *manifest, said io.Writer) (size int64, err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var total int64
	for _, f := range m.Files {
		total += f.Size
	}
	seen := &meter{}
	defer reportProgress(said, "writing the archive", total, seen.bytes.Load)()
	if err := writeBundle(ctx, file, work, m, seen); err != nil {
		return 0, err
	}
	if err := file.Sync(); err != nil {
		return 0, err
	}
	return fileSize(path), nil
}

// syncDirectory puts the names of a directory's files on disk.
func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// fileSize returns the size of a file, or 0.
func fileSize(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

// meter counts what is written to it.
type meter struct{ bytes atomic.Int64 }

// Write implements io.Writer.
func (m *meter) Write(p []byte) (int, error) {
	m.bytes.Add(int64(len(p)))
	return len(p), nil
}

// progressEvery is how often a command that takes long says how far it is.
const progressEvery = 5 * time.Second

// reportProgress says from time to time how much of the total is done, until the
// function that it returns is called.
func reportProgress(out io.Writer, what string, total int64, done func() int64) (end func()) {
	stop := make(chan struct{})
	var task sync.WaitGroup
	task.Go(func() {
		ticks := time.NewTicker(progressEvery)
		defer ticks.Stop()
		for {
			select {
			case <-stop:
				return
			case <-ticks.C:
				if total == 0 { // not known
					fmt.Fprintf(out, "%s: %s\n", what, bytesText(done()))
					continue
				}
				fmt.Fprintf(out, "%s: %s of %s\n", what, bytesText(done()), bytesText(total))
			}
		}
	})
	return func() {
		close(stop)
		task.Wait()
	}
}

// bytesText writes a number of bytes in the unit that suits it.
func bytesText(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 10<<20:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
