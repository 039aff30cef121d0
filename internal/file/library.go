package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Options are what a Library needs. All but Now are required.
type Options struct {
	Store Store
	// Content returns the bucket with the content of the files of an org.
	Content func(ctx context.Context, orgID string) (blob.Bucket, error)
	Log     *slog.Logger
	Now     func() time.Time // nil = time.Now
}

// Library keeps files. It is safe for concurrent use.
type Library struct{ o Options }

// New returns a Library.
func New(o Options) *Library {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Library{o}
}

// Add stores a file: of f, everything but ID, Bytes and SHA256. When Add returns, the file survives a
// crash of the gateway. The error is a *blob.LimitError if it does not fit into what the org may have; then nothing was
// stored.
func (l *Library) Add(ctx context.Context, f File, body io.ReadSeeker) (File, error) {
	content, err := l.o.Content(ctx, f.Org)
	if err != nil {
		return File{}, err
	}
	f.ID = id.NewOrdered(Prefix)
	info, err := content.Put(ctx, f.ID, body)
	if err != nil {
		return File{}, err
	}
	f.Bytes, f.SHA256 = info.Size, info.SHA256
	if err := l.o.Store.AddFile(ctx, f); err != nil {
		if capped := new(org.CapError); errors.As(err, &capped) {
			what := fmt.Sprintf("%s has reached its limit of %d %s; delete some, or ask the operator to raise the limit", capped.Whose, capped.Max, capped.What)
			err = &blob.LimitError{What: what, Setting: capped.Setting}
		}
		return File{}, errors.Join(err, content.Delete(context.WithoutCancel(ctx), f.ID))
	}
	return f, nil
}

// Find returns a file of a key, also one that has expired.
func (l *Library) Find(ctx context.Context, orgID, principal, id string) (File, error) {
	return l.o.Store.File(ctx, orgID, principal, id)
}

// List returns files of a key, also those that have expired.
func (l *Library) List(ctx context.Context, q Query) ([]File, error) { return l.o.Store.Files(ctx, q) }

// Open returns the content of a file of a key. Close it. The error wraps ErrExpired if the content is gone.
func (l *Library) Open(ctx context.Context, orgID, principal, id string) (io.ReadCloser, File, error) {
	f, err := l.o.Store.File(ctx, orgID, principal, id)
	switch {
	case err != nil:
		return nil, File{}, err
	case f.Expired(l.o.Now()):
		return nil, f, fmt.Errorf("file %s: %w", id, ErrExpired)
	}
	content, err := l.o.Content(ctx, orgID)
	if err != nil {
		return nil, File{}, err
	}
	r, _, err := content.Open(ctx, id)
	if errors.Is(err, blob.ErrNotFound) { // deleted between the two reads, or missing from the disk
		if _, err := l.o.Store.File(ctx, orgID, principal, id); err != nil {
			return nil, File{}, err
		}
		return nil, File{}, fmt.Errorf("file %s: %w: it is missing from the data directory", id, blob.ErrDamaged)
	}
	if err == nil && f.Container != "" && f.ExpiresAt.Sub(l.o.Now()) < OutputTTL/2 {
		if err := l.Touch(ctx, orgID, f.Container, id); err != nil { // it is read all the same
			l.o.Log.Error("a file that was read gets no more time", "org", orgID, "file", id, "error", err)
		}
	}
	return r, f, err
}

// Touch gives the files that code has made in a container, or the one with an id, OutputTTL from now. It stores nothing of those that have
// more than half of it left.
func (l *Library) Touch(ctx context.Context, orgID, container, id string) error {
	now := l.o.Now()
	return l.o.Store.ExtendFiles(ctx, Extension{
		Org: orgID, Container: container, ID: id, Now: now, Before: now.Add(OutputTTL / 2), Until: now.Add(OutputTTL),
	})
}

// Delete deletes a file of a key.
func (l *Library) Delete(ctx context.Context, orgID, principal, id string) error {
	if err := l.o.Store.DeleteFile(ctx, orgID, principal, id); err != nil {
		return err
	}
	content, err := l.o.Content(ctx, orgID)
	if err == nil {
		err = content.Delete(ctx, id)
	}
	if err != nil && !errors.Is(err, blob.ErrNotFound) { // Sweep tries again
		l.o.Log.Error("the content of a deleted file was not deleted; the gateway tries again within two hours", "org", orgID, "file", id, "error", err)
	}
	return nil
}

// What one Sweep reads at once, and how old the content of no known file is before it is deleted: one that is younger may
// be that of an upload whose file is about to be stored.
const (
	sweepBatch = 100
	strayAge   = time.Hour
)

// Sweep deletes the content of files that have expired, and content of no file of these orgs.
func (l *Library) Sweep(ctx context.Context, orgs []string) error {
	err := l.expire(ctx)
	for _, orgID := range orgs {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err = errors.Join(err, l.sweepStrays(ctx, orgID))
	}
	return errors.Join(err, l.o.Store.ForgetExpired(ctx, l.o.Now().Add(-KeptExpired)))
}

func (l *Library) expire(ctx context.Context) error {
	for {
		found, err := l.o.Store.ExpiredFiles(ctx, l.o.Now(), sweepBatch)
		if err != nil || len(found) == 0 {
			return err
		}
		for _, f := range found {
			content, err := l.o.Content(ctx, f.Org)
			if err == nil {
				err = content.Delete(ctx, f.ID)
			}
			if err != nil && !errors.Is(err, blob.ErrNotFound) && !errors.Is(err, blob.ErrDeleted) {
				return fmt.Errorf("delete the content of the expired file %s: %w", f.ID, err)
			}
			if err := l.o.Store.MarkExpired(ctx, f.Org, f.ID); err != nil {
				return err
			}
		}
		l.o.Log.Info("the content of expired files was deleted", "files", len(found))
	}
}

// sweepStrays deletes content that a crash has left without a file.
func (l *Library) sweepStrays(ctx context.Context, orgID string) error {
	content, err := l.o.Content(ctx, orgID)
	if errors.Is(err, blob.ErrDeleted) {
		return nil
	}
	if err != nil {
		return err
	}
	for q := (blob.Query{Limit: blob.MaxLimit}); ; {
		page, err := content.List(ctx, q)
		if err != nil {
			return err
		}
		for _, b := range page.Files {
			q.After = b.Path
			if l.o.Now().Sub(b.Modified) < strayAge {
				continue
			}
			known, err := l.o.Store.HasFile(ctx, orgID, b.Path)
			if err != nil {
				return err
			}
			if known {
				continue
			}
			if err := content.Delete(ctx, b.Path); err != nil && !errors.Is(err, blob.ErrNotFound) {
				return err
			}
			l.o.Log.Warn("content of no file was deleted", "org", orgID, "file", b.Path, "bytes", b.Size)
		}
		if !page.More {
			return nil
		}
	}
}
