package database

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

const fileColumns = `org, id, principal, name, media_type, purpose, bytes, sha256, created_at, expires_at, container, path FROM files`

func scanFile(row scanner) (f file.File, err error) {
	err = row.Scan(&f.Org, &f.ID, &f.Principal, &f.Name, &f.MediaType, &f.Purpose, &f.Bytes, &f.SHA256, asTime{&f.CreatedAt}, asTime{&f.ExpiresAt}, &f.Container, &f.Path)
	return f, err
}

// AddFile implements file.Store.
func (s *Store) AddFile(ctx context.Context, f file.File) error {
	return s.write(ctx, f.Org, "add a file", "file "+f.ID, func(t *tx) error {
		if err := t.mustExist(f.Org); err != nil {
			return err
		}
		var files, bytes int64
		if err := t.queryRow(`SELECT count(*), coalesce(sum(bytes), 0) FROM files WHERE org = ? AND principal = ? AND expired = 0`,
			[]any{f.Org, f.Principal}, &files, &bytes); err != nil {
			return err
		}
		if err := t.caps.CheckKeyFiles(files, bytes, f.Bytes); err != nil {
			return err
		}
		_, err := t.exec(`INSERT INTO files (org, id, principal, name, media_type, purpose, bytes, sha256, created_at, expires_at, container, path) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			f.Org, f.ID, f.Principal, f.Name, f.MediaType, f.Purpose, f.Bytes, f.SHA256, millis(f.CreatedAt), millis(f.ExpiresAt), f.Container, f.Path)
		return err
	})
}

// File implements file.Store.
func (r *Reader) File(ctx context.Context, orgID, principal, id string) (file.File, error) {
	f, err := scanFile(r.db.QueryRowContext(ctx, `SELECT `+fileColumns+` WHERE org = ? AND id = ? AND ? IN (principal, '')`, orgID, id, principal))
	if err = orNotFound(err); errors.Is(err, org.ErrNotFound) {
		return file.File{}, file.ErrNotFound
	}
	return f, r.wrap("read a file", err)
}

// Files implements file.Store.
func (r *Reader) Files(ctx context.Context, q file.Query) ([]file.File, error) {
	order, beyond := "DESC", "<"
	if q.Oldest {
		order, beyond = "ASC", ">"
	}
	query, args := `SELECT `+fileColumns+` WHERE org = ?`, []any{q.Org}
	if q.Principal != "" {
		query, args = query+` AND principal = ?`, append(args, q.Principal)
	}
	if q.Purpose != "" {
		query, args = query+` AND purpose = ?`, append(args, q.Purpose)
	}
	if q.Container != "" {
		query, args = query+` AND container = ?`, append(args, q.Container)
	}
	if q.After != "" {
		query, args = query+` AND id `+beyond+` ?`, append(args, q.After)
	}
	found, err := list(ctx, r.db, scanFile, query+` ORDER BY id `+order+` LIMIT ?`, append(args, max(q.Limit, 0))...)
	return found, r.wrap("list files", err)
}

// DeleteFile implements file.Store.
func (s *Store) DeleteFile(ctx context.Context, orgID, principal, id string) error {
	err := s.write(ctx, orgID, "delete a file", "file "+id, func(t *tx) error {
		return requireFound(t.exec(`DELETE FROM files WHERE org = ? AND id = ? AND ? IN (principal, '')`, orgID, id, principal))
	})
	if errors.Is(err, org.ErrNotFound) {
		return file.ErrNotFound
	}
	return err
}

// ExpiredFiles implements file.Store.
func (r *Reader) ExpiredFiles(ctx context.Context, now time.Time, limit int) ([]file.File, error) {
	found, err := list(ctx, r.db, scanFile, `SELECT `+fileColumns+` WHERE expires_at > 0 AND expires_at <= ? AND expired = 0 ORDER BY expires_at, id LIMIT ?`, millis(now), max(limit, 0))
	return found, r.wrap("list expired files", err)
}

// ExtendFiles implements file.Store.
func (s *Store) ExtendFiles(ctx context.Context, x file.Extension) error {
	return s.write(ctx, x.Org, "extend files", "files of "+x.Container, func(t *tx) error {
		_, err := t.exec(`UPDATE files SET expires_at = ? WHERE org = ? AND container = ? AND ? IN (id, '') AND expires_at > ? AND expires_at < ? AND expired = 0`,
			millis(x.Until), x.Org, x.Container, x.ID, millis(x.Now), millis(x.Before))
		return err
	})
}

// MarkExpired implements file.Store.
func (s *Store) MarkExpired(ctx context.Context, orgID, id string) error {
	return s.write(ctx, orgID, "mark an expired file", "file "+id, func(t *tx) error {
		_, err := t.exec(`UPDATE files SET expired = 1 WHERE org = ? AND id = ?`, orgID, id)
		return err
	})
}

// ForgetExpired implements file.Store.
func (s *Store) ForgetExpired(ctx context.Context, before time.Time) error {
	return s.write(ctx, noOrg, "delete expired files", "files", func(t *tx) error {
		_, err := t.exec(`DELETE FROM files WHERE expires_at > 0 AND expires_at < ? AND expired = 1`, millis(before))
		return err
	})
}

// HasFile implements file.Store.
func (r *Reader) HasFile(ctx context.Context, orgID, id string) (bool, error) {
	var n int
	err := r.db.QueryRowContext(ctx, `SELECT count(*) FROM files WHERE org = ? AND id = ? AND expired = 0`, orgID, id).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("file %s: %w", id, r.wrap("look for a file", err))
	}
	return n > 0, nil
}
