package database

import (
	"context"
	"database/sql"
	"errors"

	"github.com/turnpike-gateway/turnpike/internal/toolcache"
)

// CachedResult implements toolcache.Store.
func (s *Store) CachedResult(ctx context.Context, orgID string, name toolcache.Name) (*toolcache.Entry, error) {
	e := toolcache.Entry{Name: name}
	err := s.db.QueryRowContext(ctx, `SELECT value, mac, kept_at, expires_at FROM tool_cache WHERE org = ? AND name = ?`, orgID, name[:]).
		Scan(&e.Value, &e.MAC, &e.KeptAt, &e.ExpiresAt)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	} else if err != nil {
		return nil, s.wrap("read a kept result", err)
	}
	return &e, nil
}

// KeepResult implements toolcache.Store.
func (s *Store) KeepResult(orgID string, e toolcache.Entry, b toolcache.Bounds, done func(error)) {
	told := func(err error) { done(s.wrap("keep a result", err)) }
	err := s.writer.trySubmit(&write{onDone: told, org: orgID, size: len(e.Value), do: func(t *tx) error {
		if err := t.mustExist(orgID); err != nil {
			return err
		}
		if err := t.keepResult(orgID, e); err != nil {
			return err
		}
		return t.evictResults(orgID, b)
	}})
	if err != nil {
		told(err)
	}
}

// DropResult implements toolcache.Store.
func (s *Store) DropResult(orgID string, e toolcache.Entry) {
	_ = s.writer.trySubmit(&write{org: orgID, do: func(t *tx) error {
		_, err := t.exec(`DELETE FROM tool_cache WHERE org = ? AND name = ? AND mac = ?`, orgID, e.Name[:], e.MAC)
		return err
	}})
}

func (t *tx) keepResult(orgID string, e toolcache.Entry) error {
	if _, err := t.exec(`DELETE FROM tool_cache WHERE _rowid_ IN (SELECT _rowid_ FROM tool_cache
			WHERE expires_at <= ? AND `+t.swept()+` LIMIT ?)`, e.KeptAt, orgID, sweepBatch); err != nil {
		return err
	}
	if _, err := t.exec(`DELETE FROM tool_cache WHERE org = ? AND name = ?`, orgID, e.Name[:]); err != nil {
		return err
	}
	_, err := t.exec(`INSERT INTO tool_cache (org, name, kept_at, expires_at, mac, bytes, value) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		orgID, e.Name[:], e.KeptAt, e.ExpiresAt, e.MAC, len(e.Value), []byte(e.Value))
	return err
}

// evictResults deletes the org's oldest entries until the bounds hold.
func (t *tx) evictResults(orgID string, b toolcache.Bounds) error {
	for {
		var entries int
		var bytes int64
		if err := t.queryRow(`SELECT entries, bytes FROM tool_cache_sizes WHERE org = ?`, []any{orgID}, &entries, &bytes); err != nil {
			return err
		}
		if entries <= b.Entries && bytes <= b.Bytes {
			return nil
		}
		n, err := t.exec(`DELETE FROM tool_cache WHERE _rowid_ = (SELECT _rowid_ FROM tool_cache WHERE org = ? ORDER BY rowid LIMIT 1)`, orgID)
		if err != nil || n == 0 {
			return err
		}
	}
}
