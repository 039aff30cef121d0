package sqlite

import (
	"context"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Keys implements org.Store.
func (r *Reader) Keys(ctx context.Context, orgID string) ([]org.Key, error) {
	keys, err := list(ctx, r.db, scanKey, `SELECT org, id, name, role, hash, hint, requests_per_minute, burst, created_at, revoked_at FROM api_keys
		WHERE org = ? ORDER BY created_at, id`, orgID)
	return keys, wrap("list keys", err)
}

// CreateKey implements org.Store.
func (s *Store) CreateKey(ctx context.Context, k org.Key) error {
	return s.change(ctx, "create a key", "key "+k.ID, func(t *tx) error {
		if err := t.mustExist(k.Org); err != nil {
			return err
		}
		_, err := t.exec(`INSERT INTO api_keys (org, id, name, role, hash, hint, requests_per_minute, burst, created_at, revoked_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			k.Org, k.ID, k.Name, string(k.Role), k.Hash[:], k.Hint, k.Rate.PerMinute, k.Rate.Burst, millis(k.CreatedAt), millis(k.RevokedAt))
		return err
	})
}

// RevokeKey implements org.Store.
func (s *Store) RevokeKey(ctx context.Context, orgID, id string, at int64) error {
	return s.change(ctx, "revoke a key", "key "+id, func(t *tx) error {
		return found(t.exec(`UPDATE api_keys SET revoked_at = iif(revoked_at = 0, ?, revoked_at) WHERE org = ? AND id = ?`, at, orgID, id))
	})
}

func scanKey(row scanner) (org.Key, error) {
	var k org.Key
	var hash []byte
	err := row.Scan(&k.Org, &k.ID, &k.Name, &k.Role, &hash, &k.Hint, &k.Rate.PerMinute, &k.Rate.Burst, asTime{&k.CreatedAt}, asTime{&k.RevokedAt})
	if err == nil && copy(k.Hash[:], hash) != len(k.Hash) {
		return k, fmt.Errorf("key %s: its hash has %d bytes", k.ID, len(hash))
	}
	return k, err
}
