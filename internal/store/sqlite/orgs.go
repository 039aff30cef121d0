package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

const orgColumns = `id, features, runtime, created_at, updated_at`

// Orgs implements org.Store.
func (r *Reader) Orgs(ctx context.Context) ([]org.Record, error) {
	orgs, err := list(ctx, r.db, scanOrg, `SELECT `+orgColumns+` FROM orgs ORDER BY id`)
	return orgs, r.wrap("list orgs", err)
}

// Org implements org.Store.
func (r *Reader) Org(ctx context.Context, id string) (org.Record, error) {
	record, err := scanOrg(r.db.QueryRowContext(ctx, `SELECT `+orgColumns+` FROM orgs WHERE id = ?`, id))
	if errors.Is(err, sql.ErrNoRows) {
		err = org.ErrNotFound
	}
	if err != nil {
		return org.Record{}, fmt.Errorf("org %s: %w", id, r.wrap("read an org", err))
	}
	return record, nil
}

// CreateOrg implements org.Store.
func (s *Store) CreateOrg(ctx context.Context, r org.Record, by org.Author) error {
	features, runtime, err := encodeOrg(r)
	if err != nil {
		return fmt.Errorf("org %s: %w", r.ID, err)
	}
	return s.write(ctx, "create an org", "org "+r.ID, func(t *tx) error {
		_, err := t.exec(`INSERT INTO orgs (id, features, runtime, created_at, updated_at) VALUES (?, ?, ?, ?, ?)`,
			r.ID, features, runtime, millis(r.CreatedAt), millis(r.UpdatedAt))
		if err != nil {
			return err
		}
		return t.record(r.ID, by, by.OrgChanged(nil, &r))
	})
}

// UpdateOrg implements org.Store.
func (s *Store) UpdateOrg(ctx context.Context, r org.Record, by org.Author) error {
	features, runtime, err := encodeOrg(r)
	if err != nil {
		return fmt.Errorf("org %s: %w", r.ID, err)
	}
	return s.write(ctx, "update an org", "org "+r.ID, func(t *tx) error {
		before, err := t.org(r.ID)
		if err != nil {
			return err
		}
		if err := requireFound(t.exec(`UPDATE orgs SET features = ?, runtime = ?, updated_at = ? WHERE id = ?`,
			features, runtime, millis(r.UpdatedAt), r.ID)); err != nil {
			return err
		}
		return t.record(r.ID, by, by.OrgChanged(&before, &r))
	})
}

// DeleteOrg implements org.Store.
func (s *Store) DeleteOrg(ctx context.Context, id string, by org.Author) error {
	return s.write(ctx, "delete an org", "org "+id, func(t *tx) error {
		before, err := t.org(id)
		if err != nil {
			return err
		}
		if err := requireFound(t.exec(`DELETE FROM orgs WHERE id = ?`, id)); err != nil {
			return err
		}
		return t.record(id, by, by.OrgChanged(&before, nil))
	})
}

// org returns the org in the transaction.
func (t *tx) org(id string) (org.Record, error) {
	return queryOne(t, scanOrg, `SELECT `+orgColumns+` FROM orgs WHERE id = ?`, id)
}

// record appends the audit row of a change to the author's chains.
func (t *tx) record(orgID string, by org.Author, e audit.Entry) error {
	for _, chain := range by.Chains(orgID) {
		if err := t.addAudit(chain, []audit.Entry{e}); err != nil {
			return err
		}
	}
	return nil
}

// write performs a write on the resource that what names. It waits for the result
// even after ctx has ended, because a queued write cannot be cancelled and the caller
// must know whether it was made.
func (s *Store) write(ctx context.Context, op, what string, do func(*tx) error) error {
	one := &write{awaited: true, do: func(t *tx) error {
		err := do(t)
		if isUniqueViolation(err) {
			return org.ErrExists
		}
		return err
	}}
	err := s.writer.submit(ctx, one)
	if err == nil {
		<-one.done
		err = one.err
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, s.wrap(op, err))
	}
	return nil
}

// requireFound returns org.ErrNotFound for a statement that changed no row.
func requireFound(changed int64, err error) error {
	if err == nil && changed == 0 {
		return org.ErrNotFound
	}
	return err
}

// mustExist returns an error that wraps org.ErrNotFound if there is no such org.
func (t *tx) mustExist(orgID string) error {
	var n int
	if err := t.queryRow(`SELECT count(*) FROM orgs WHERE id = ?`, []any{orgID}, &n); err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("org %s: %w", orgID, org.ErrNotFound)
	}
	return nil
}

// encodeOrg returns the JSON columns of an org. The members have the names of the
// struct's fields, so renaming a field needs a migration.
func encodeOrg(r org.Record) (features, runtime string, err error) {
	if features, err = encode(r.Features); err != nil {
		return "", "", err
	}
	runtime, err = encode(r.Runtime)
	return features, runtime, err
}

func scanOrg(row scanner) (org.Record, error) {
	var r org.Record
	err := row.Scan(&r.ID, asJSON{&r.Features}, asSettings{&r.Runtime, &r.UnknownSettings}, asTime{&r.CreatedAt}, asTime{&r.UpdatedAt})
	return r, err
}

// encode returns v as JSON text.
func encode(v any) (string, error) {
	data, err := json.Marshal(v)
	return string(data), err
}
