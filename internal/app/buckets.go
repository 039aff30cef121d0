package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	blobdatabase "github.com/turnpike-gateway/turnpike/internal/blob/database"
	blobdisk "github.com/turnpike-gateway/turnpike/internal/blob/disk"
	"github.com/turnpike-gateway/turnpike/internal/blob/s3"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/storagetool"
	"github.com/turnpike-gateway/turnpike/internal/surface/files"
)

// buckets opens the buckets of orgs. It implements [blob.Buckets].
type buckets struct {
	disk     *blobdisk.Store
	s3       *s3.Store
	database *blobdatabase.Store              // nil = it takes no files
	replicas bool                             // others could not read what is on this disk
	org      func(id string) (*org.Org, bool) // false = there is no such org
	refuse   func() error                     // why no more may be written to the disk; nil = it may
	links    *files.Links                     // makes signed URLs

	observe func(operation, kind, outcome string) // nil = nobody counts
	log     *slog.Logger
}

// newBuckets returns what opens buckets. It is called before there is a directory. chunks is where the store has the files of
// buckets; nil = nowhere.
func (a *App) newBuckets(chunks blobdatabase.Table) (*buckets, error) {
	limits := func() blob.Limits {
		caps := a.live.current.Load().config.OrgCaps
		return blob.Limits{Bytes: caps.FileBytes, Files: int64(caps.Files)}
	}
	store, err := blobdisk.New(filepath.Join(a.config.Data, FilesDirectory), blobdisk.Options{Log: a.log, Limits: limits})
	if err != nil {
		return nil, err
	}
	var inDatabase *blobdatabase.Store
	if chunks != nil {
		inDatabase = blobdatabase.New(chunks, blobdatabase.Options{Log: a.log, Limits: limits})
	}
	return &buckets{
		disk: store, database: inDatabase, replicas: a.config.Replica != nil,
		s3: s3.New(s3.Options{Client: a.out.Guarded(egress.GuardedOptions{}), Secret: a.vault.orgSecret, Log: a.log}), log: a.log,
		observe: a.shown.stored(),
		org:     func(id string) (*org.Org, bool) { return a.directory.Org(id) }, refuse: func() error { return a.disk.refusal() },
	}, nil
}

// space returns the name space of an org on disk.
func space(o *org.Org) blobdisk.Space { return blobdisk.Space{Org: o.ID, CreatedAt: o.CreatedAt} }

// Open implements [blob.Buckets].
func (b *buckets) Open(ctx context.Context, orgID, name string) (blob.Bucket, error) {
	o, ok := b.org(orgID)
	if !ok {
		return nil, blob.ErrDeleted
	}
	settings, ok := o.Runtime.Bucket(name)
	if !ok {
		return nil, fmt.Errorf("%w: %q", blob.ErrNoBucket, name)
	}
	switch {
	case settings.IsS3():
		remote, err := b.s3.Bucket(ctx, orgID, settings)
		if err != nil {
			return nil, err
		}
		return watched{remote, b, orgID, settings}, nil
	case settings.Kind == org.BucketDatabase && b.database == nil:
		return nil, &blob.RefusedError{Why: "the bucket is in a PostgreSQL database, and the gateway has none", Setting: "kind of the bucket"}
	case settings.Kind == org.BucketDatabase:
		return watched{b.database.Bucket(blobdatabase.SpaceOf(o.ID, o.CreatedAt), settings), b, orgID, settings}, nil
	case b.replicas:
		return nil, &blob.RefusedError{Why: "the bucket is on the disk of one of several replicas, and the others could not read it",
			Setting: "kind of the bucket"}
	}
	return watched{b.disk.Bucket(space(o), settings), b, orgID, settings}, nil
}

// filesBucket is the bucket with the files of the keys of an org, in the database if it takes files, else on disk. No bucket
// of settings has its name.
const filesBucket = "_files"

// ofKeys returns the content of the files of the keys of an org.
func (b *buckets) ofKeys(_ context.Context, orgID string) (blob.Bucket, error) {
	o, ok := b.org(orgID)
	if !ok {
		return nil, blob.ErrDeleted
	}
	settings := org.Bucket{Name: filesBucket}
	if b.database != nil {
		settings.Kind = org.BucketDatabase
		return watched{b.database.Bucket(blobdatabase.SpaceOf(o.ID, o.CreatedAt), settings), b, orgID, settings}, nil
	}
	return watched{b.disk.Bucket(space(o), settings), b, orgID, settings}, nil
}

// newLinks returns what makes signed URLs.
func (a *App) newLinks() (*files.Links, error) {
	key, err := a.keys.urlKey()
	if err != nil {
		return nil, err
	}
	l := &files.Links{Signer: blob.NewSigner(key), Public: func() string { return a.live.current.Load().config.PublicURL }, Now: clock.Wall}
	if a.listener != nil && addrPort(a.listener).Addr().IsLoopback() {
		l.Own = a.URL()
	}
	return l, nil
}

// link returns a signed URL for a tool of an org.
func (b *buckets) link(orgID, bucket, path string) (storagetool.Link, error) {
	o, ok := b.org(orgID)
	if !ok {
		return storagetool.Link{}, blob.ErrDeleted
	}
	made, until, err := b.links.Make(o, bucket, path, blob.MaxSigned, nil)
	if f := (*fault.Error)(nil); errors.As(err, &f) {
		return storagetool.Link{}, &storagetool.MissingError{Why: f.Message, Setting: f.Setting}
	}
	return storagetool.Link{URL: made, ExpiresAt: until}, err
}

// live reports whether the org of a directory exists.
func (b *buckets) live(s blobdisk.Space) bool {
	o, ok := b.org(s.Org)
	return ok && space(o).Is(s)
}

// liveInDatabase reports whether the org of a name space in the database exists.
func (b *buckets) liveInDatabase(s blobdatabase.Space) bool {
	o, ok := b.org(s.Org)
	return ok && blobdatabase.SpaceOf(o.ID, o.CreatedAt) == s
}

// warn says at the start how many deleted orgs have files, which will be deleted.
func (b *buckets) warn(ctx context.Context) {
	n, err := b.disk.Strangers(b.live)
	if b.database != nil {
		more, missing := b.database.Strangers(ctx, b.liveInDatabase)
		n, err = n+more, errors.Join(err, missing)
	}
	switch {
	case err != nil:
		b.log.Error("cannot list the files of buckets", "error", err)
	case n > 0:
		b.log.Warn("the files of orgs that do not exist will be deleted", "orgs", n, "in", firstRetention)
	}
}

// sweep deletes the files of orgs that do not exist.
func (b *buckets) sweep(ctx context.Context) {
	err := b.disk.Sweep(ctx, b.live)
	if b.database != nil {
		err = errors.Join(err, b.database.Sweep(ctx, b.liveInDatabase))
	}
	if err != nil && ctx.Err() == nil {
		b.log.Error("the files of deleted orgs were not deleted; the gateway tries again within the hour", "error", err)
	}
}

// watched is a bucket whose operations are counted and logged.
type watched struct {
	blob.Bucket
	of       *buckets
	org      string
	settings org.Bucket
}

// saw counts an operation.
func (w watched) saw(operation string, err error) {
	if w.of.observe == nil {
		return
	}
	w.of.observe(operation, w.settings.KindName(), outcomeOf(err))
}

// outcomeOf returns the word of metrics for the end of an operation.
func outcomeOf(err error) string {
	var limit *blob.LimitError
	var argument *blob.ArgumentError
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &limit):
		return "over_limit"
	case errors.As(err, &argument), errors.Is(err, blob.ErrNotFound):
		return "refused"
	}
	return "failed"
}

// List implements [blob.Bucket].
func (w watched) List(ctx context.Context, q blob.Query) (blob.Page, error) {
	page, err := w.Bucket.List(ctx, q)
	w.saw("list", err)
	return page, err
}

// Open implements [blob.Bucket].
func (w watched) Open(ctx context.Context, path string) (io.ReadCloser, blob.Info, error) {
	content, info, err := w.Bucket.Open(ctx, path)
	w.saw("read", err)
	return content, info, err
}

// Put implements [blob.Bucket]. Nothing is written to a disk that is nearly full.
func (w watched) Put(ctx context.Context, path string, body io.ReadSeeker) (blob.Info, error) {
	if w.settings.KindName() == org.BucketDisk {
		if err := w.of.refuse(); err != nil {
			err = &blob.RefusedError{Why: "the gateway's disk is nearly full; nothing was written", Setting: "min_free_disk_mib", Err: err}
			w.saw("write", err)
			return blob.Info{}, err
		}
	}
	info, err := w.Bucket.Put(ctx, path, body)
	w.saw("write", err)
	if err == nil {
		w.of.log.Info("a file was written to a bucket", "org", w.org, "bucket", w.settings.Name, "bytes", info.Size)
	}
	return info, err
}

// Delete implements [blob.Bucket].
func (w watched) Delete(ctx context.Context, path string) error {
	err := w.Bucket.Delete(ctx, path)
	w.saw("delete", err)
	if err == nil {
		w.of.log.Info("a file of a bucket was deleted", "org", w.org, "bucket", w.settings.Name)
	}
	return err
}
