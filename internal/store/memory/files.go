package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

type storedFile struct {
	file.File
	expired bool // it is marked
}

// AddFile implements file.Store.
func (o *Orgs) AddFile(_ context.Context, f file.File) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(f.Org)
	if err != nil {
		return fmt.Errorf("file %s: %w", f.ID, err)
	}
	if r.file(f.ID) >= 0 {
		return fmt.Errorf("file %s: %w", f.ID, org.ErrExists)
	}
	var files, bytes int64
	for _, other := range r.files {
		if other.Principal == f.Principal && !other.expired {
			files++
			bytes += other.Bytes
		}
	}
	if err := o.Caps.CheckKeyFiles(files, bytes, f.Bytes); err != nil {
		return fmt.Errorf("file %s: %w", f.ID, err)
	}
	r.files = append(r.files, storedFile{File: f})
	return nil
}

// file returns the index of a file; -1 = there is none.
func (r *orgRecord) file(id string) int {
	return slices.IndexFunc(r.files, func(f storedFile) bool { return f.ID == id })
}

// findFile returns the org and the index of a file of a key. It is called with mu held.
func (o *Orgs) findFile(orgID, principal, id string) (*orgRecord, int, error) {
	if r := o.orgs[orgID]; r != nil {
		if i := r.file(id); i >= 0 && (principal == "" || r.files[i].Principal == principal) {
			return r, i, nil
		}
	}
	return nil, 0, file.ErrNotFound
}

// File implements file.Store.
func (o *Orgs) File(_ context.Context, orgID, principal, id string) (file.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, i, err := o.findFile(orgID, principal, id)
	if err != nil {
		return file.File{}, err
	}
	return r.files[i].File, nil
}

// Files implements file.Store.
func (o *Orgs) Files(_ context.Context, q file.Query) (out []file.File, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.orgs[q.Org]
	if r == nil {
		return nil, nil
	}
	for _, f := range r.files {
		beyond := q.After == "" || (f.ID > q.After) == q.Oldest && f.ID != q.After
		if (q.Principal == "" || f.Principal == q.Principal) && (q.Purpose == "" || f.Purpose == q.Purpose) && (q.Container == "" || f.Container == q.Container) && beyond {
			out = append(out, f.File)
		}
	}
	slices.SortFunc(out, func(a, b file.File) int {
		if q.Oldest {
			return cmp.Compare(a.ID, b.ID)
		}
		return cmp.Compare(b.ID, a.ID)
	})
	return out[:min(len(out), max(q.Limit, 0))], nil
}

// DeleteFile implements file.Store.
func (o *Orgs) DeleteFile(_ context.Context, orgID, principal, id string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, i, err := o.findFile(orgID, principal, id)
	if err == nil {
		r.files = slices.Delete(r.files, i, i+1)
	}
	return err
}

// ExpiredFiles implements file.Store.
func (o *Orgs) ExpiredFiles(_ context.Context, now time.Time, limit int) (out []file.File, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.orgs {
		for _, f := range r.files {
			if f.Expired(now) && !f.expired {
				out = append(out, f.File)
			}
		}
	}
	slices.SortFunc(out, func(a, b file.File) int { return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), cmp.Compare(a.ID, b.ID)) })
	return out[:min(len(out), max(limit, 0))], nil
}

// ExtendFiles implements file.Store.
func (o *Orgs) ExtendFiles(_ context.Context, x file.Extension) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.orgs[x.Org]; r != nil {
		for i := range r.files {
			if f := &r.files[i]; !f.expired && x.Extends(f.File) {
				f.ExpiresAt = x.Until
			}
		}
	}
	return nil
}

// MarkExpired implements file.Store.
func (o *Orgs) MarkExpired(_ context.Context, orgID, id string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r := o.orgs[orgID]; r != nil {
		if i := r.file(id); i >= 0 {
			r.files[i].expired = true
		}
	}
	return nil
}

// ForgetExpired implements file.Store.
func (o *Orgs) ForgetExpired(_ context.Context, before time.Time) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.orgs {
		r.files = slices.DeleteFunc(r.files, func(f storedFile) bool { return f.expired && f.ExpiresAt.Before(before) })
	}
	return nil
}

// HasFile implements file.Store.
func (o *Orgs) HasFile(_ context.Context, orgID, id string) (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.orgs[orgID]
	if r == nil {
		return false, nil
	}
	i := r.file(id)
	return i >= 0 && !r.files[i].expired, nil
}
