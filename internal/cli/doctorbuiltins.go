package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/blob/s3"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/directory"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
)

// checkBuckets writes a small file to each bucket, reads it and deletes it.
func (d *doctor) checkBuckets(ctx context.Context) {
	const kind = "bucket"
	store := s3.New(s3.Options{
		Client: d.way.Guarded(egress.GuardedOptions{}), Log: slog.New(slog.DiscardHandler),
		Secret: func(ctx context.Context, orgID, reference string) (string, error) {
			return d.secretOf(orgID)(ctx, reference)
		},
	})
	d.orgs(func(id string, _ []org.MCPServer, runtime org.Runtime) {
		for _, one := range runtime.Buckets {
			switch one.KindName() {
			case org.BucketDatabase:
				d.untried(kind, id, one.Name, "is in the gateway's database, which has lines of its own")
				continue
			case org.BucketDisk:
				d.checkDiskBucket(id, one.Name)
				continue
			}
			limited, cancel := context.WithTimeout(ctx, doctorTime)
			err := tryS3(limited, store, id, one)
			cancel()
			var blocked *egress.BlockedError
			var refused *blob.RefusedError
			switch {
			case err == nil:
				d.well(kind, id, one.Name, "a small file was written to the service, read and deleted")
			case errors.As(err, &blocked):
				d.wrong(kind, id, one.Name, "the outbound policy refuses its address: "+blocked.Reason, cmp.Or(strings.TrimPrefix(directory.AllowedBy(blocked), "; "), "correct its endpoint"))
			case errors.As(err, &refused) && refused.Setting != "":
				d.wrong(kind, id, one.Name, refused.Why, "correct this setting: "+refused.Setting)
			default:
				d.wrong(kind, id, one.Name, err.Error(), "check the bucket in the service, and that its credentials may write, read, list and delete")
			}
		}
	})
}

// tryS3 writes a small file to a bucket, reads it and deletes it. What was written is deleted after a failure, too.
func tryS3(ctx context.Context, store *s3.Store, orgID string, settings org.Bucket) (err error) {
	settings.Quota = 0 // else all of its files are counted
	bucket, err := store.Bucket(ctx, orgID, settings)
	if err != nil {
		return err
	}
	path, want := "turnpike-doctor-"+strings.ToLower(rand.Text())+".txt", []byte("written by turnpike doctor\n")
	if _, err := bucket.Put(ctx, path, bytes.NewReader(want)); err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	defer func() {
		if deleted := bucket.Delete(ctx, path); deleted != nil && err == nil {
			err = fmt.Errorf("the file %s was written and cannot be deleted: %w", path, deleted)
		}
	}()
	content, _, err := bucket.Open(ctx, path)
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	defer content.Close()
	got, err := io.ReadAll(io.LimitReader(content, 1<<10))
	if err == nil && !bytes.Equal(got, want) {
		err = errors.New("what was read is not what was written")
	}
	if err != nil {
		return fmt.Errorf("reading: %w", err)
	}
	return nil
}

// checkDiskBucket writes a file to the directory of the buckets on disk, reads it and deletes it. The directories of
// orgs belong to the gateway, which may run: it counts what is in them.
func (d *doctor) checkDiskBucket(orgID, name string) {
	const kind = "bucket"
	if d.config.Replica != nil {
		d.wrong(kind, orgID, name, "is on the disk of one of several replicas, and the others cannot read it", "set its kind to database or "+
			"s3, and copy its files")
		return
	}
	dir := filepath.Join(d.data, app.FilesDirectory)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		d.untried(kind, orgID, name, "its directory does not exist yet; the gateway creates it at its start")
		return
	}
	want := bytes.Repeat([]byte("turnpike doctor\n"), 64)
	f, err := os.CreateTemp(dir, ".doctor-*")
	if err == nil {
		_, err = f.Write(want)
		err = errors.Join(err, f.Sync(), f.Close())
		got, readErr := os.ReadFile(f.Name())
		err = errors.Join(err, readErr, os.Remove(f.Name()))
		if err == nil && !bytes.Equal(got, want) {
			err = errors.New("what was read is not what was written")
		}
	}
	if err != nil {
		d.wrong(kind, orgID, name, "a file in "+app.FilesDirectory+" of the data directory cannot be written, read and deleted: "+plainPathError(err),
			"give the user of the gateway the right to write there, and check that the disk has space")
		return
	}
	d.well(kind, orgID, name, "a small file was written to the disk of the buckets, read and deleted")
}

// sandboxTime is how long the check of a language may take: Python may have to be compiled.
const sandboxTime = 2 * time.Minute

// checkSandbox runs 6*7 in each language.
func (d *doctor) checkSandbox(ctx context.Context) {
	const kind = "sandbox"
	c := *d.config
	c.Data = d.data
	o := app.SandboxOptions(&c, d.program)
	key, err := d.resolver.Resolve(ctx, c.Sandbox.APIKey)
	if err != nil {
		d.wrong(kind, "", "remote", "sandbox.api_key: "+err.Error(), "correct sandbox.api_key, or what it refers to")
		return
	}
	o.Key, o.Client, o.Log = key.Reveal(), d.way.Operator(), slog.New(slog.DiscardHandler)
	if len(o.Drivers) == 0 {
		d.untried(kind, "", builtin.CodeExecute, "sandbox.drivers is not set, so no code runs. "+proposed(sandbox.Check(ctx, o)))
		return
	}
	temporary, err := os.MkdirTemp("", "turnpike-doctor-")
	if err != nil {
		d.wrong(kind, "", builtin.CodeExecute, plainPathError(err), "check the directory for temporary files")
		return
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	o.Dir = temporary // a gateway may use the directories of sessions
	if _, err := os.Stat(o.Compiled); err != nil {
		o.Compiled = "" // below Dir
	}
	m, err := sandbox.New(ctx, o)
	if err != nil {
		d.wrong(kind, "", builtin.CodeExecute, err.Error(), "correct sandbox.drivers")
		return
	}
	defer m.Close()
	for _, l := range []sandbox.Language{sandbox.JavaScript, sandbox.Python} {
		limited, cancel := context.WithTimeout(ctx, sandboxTime)
		got, err := m.Run(limited, sandbox.Request{Org: "doctor", Session: "doctor", Language: l, Code: "6*7"})
		cancel()
		switch {
		case errors.Is(err, sandbox.ErrNotConfigured):
			d.untried(kind, "", string(l), "no driver in sandbox.drivers runs it")
		case err != nil:
			d.wrong(kind, "", string(l), err.Error(), "correct the cause, or choose a driver that works here; turnpike sandbox list shows them")
		case got.Result != "42" || got.Ended != "":
			d.wrong(kind, "", string(l), fmt.Sprintf("%s ran 6*7, and the result is %q. %s", got.Driver, got.Result, got.Ended), "turnpike sandbox test runs it again; choose another driver if it fails, too")
		default:
			d.well(kind, "", string(l), "ran 6*7 with the driver "+got.Driver)
		}
	}
}

// proposed says which drivers work here.
func proposed(all []sandbox.Status) string {
	var names []string
	for _, s := range all {
		if s.Err == nil {
			names = append(names, fmt.Sprintf("%s (%s)", s.Driver, languages(s.Languages)))
		}
	}
	if names == nil {
		return "No driver works here"
	}
	return "These drivers work here: " + strings.Join(names, ", ")
}
