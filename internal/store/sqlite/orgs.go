package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Orgs implements org.Store.
func (r *Reader) Orgs(ctx context.Context) ([]org.Record, error) {
	orgs, err := list(ctx, r.db, scanOrg, `SELECT id, features, runtime, created_at, updated_at FROM orgs ORDER BY id`)
	return orgs, wrap("list orgs", err)
}

// CreateOrg implements org.Store.
func (s *Store) CreateOrg(ctx context.Context, r org.Record) error {
	features, runtime, err := encodeOrg(r)
	if err != nil {
		return fmt.Errorf("org %s: %w", r.ID, err)
	}
	return s.change(ctx, "create an org", "org "+r.ID, func(t *tx) error {
		_, err := t.exec(`INSERT INTO orgs (id, features, runtime, created_at, updated_at) VALUES (?, ?, ?, ?, ?)`,
			r.ID, features, runtime, millis(r.CreatedAt), millis(r.UpdatedAt))
		return err
	})
}

// UpdateOrg implements org.Store.
func (s *Store) UpdateOrg(ctx context.Context, r org.Record) error {
	features, runtime, err := encodeOrg(r)
	if err != nil {
		return fmt.Errorf("org %s: %w", r.ID, err)
	}
	return s.change(ctx, "update an org", "org "+r.ID, func(t *tx) error {
		return found(t.exec(`UPDATE orgs SET features = ?, runtime = ?, updated_at = ? WHERE id = ?`,
			features, runtime, millis(r.UpdatedAt), r.ID))
	})
}

// DeleteOrg implements org.Store.
func (s *Store) DeleteOrg(ctx context.Context, id string) error {
	return s.change(ctx, "delete an org", "org "+id, func(t *tx) error {
		return found(t.exec(`DELETE FROM orgs WHERE id = ?`, id))
	})
}

// change performs a change of the thing that what names.
func (s *Store) change(ctx context.Context, op, what string, do func(*tx) error) error {
	err := s.writer.perform(ctx, func(t *tx) error {
		err := do(t)
		if taken(err) {
			return org.ErrExists
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, wrap(op, err))
	}
	return nil
}

// found makes an error of a change that has changed nothing.
func found(changed int64, err error) error {
	if err == nil && changed == 0 {
		return org.ErrNotFound
	}
	return err
}

// mustExist returns an error that wraps org.ErrNotFound if the org is not there.
func (t *tx) mustExist(orgID string) error {
	var n int
	if err := t.get(`SELECT count(*) FROM orgs WHERE id = ?`, []any{orgID}, &n); err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("org %s: %w", orgID, org.ErrNotFound)
	}
	return nil
}

// encodeOrg returns what is stored as JSON. The settings keep the names of
// their fields: to rename one takes a migration.
func encodeOrg(r org.Record) (features, runtime string, err error) {
	if features, err = encode(r.Features); err != nil {
		return "", "", err
	}
	runtime, err = encode(r.Runtime)
	return features, runtime, err
}

func scanOrg(row scanner) (org.Record, error) {
	var r org.Record
	err := row.Scan(&r.ID, asJSON{&r.Features}, asJSON{&r.Runtime}, asTime{&r.CreatedAt}, asTime{&r.UpdatedAt})
	return r, err
}

// encode returns v as JSON text.
func encode(v any) (string, error) {
	data, err := json.Marshal(v)
	return string(data), err
}
