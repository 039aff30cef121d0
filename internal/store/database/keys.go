package database

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

const keyColumns = `org, id, name, role, hash, hint, requests_per_minute, burst, access, expires_at,
	previous_hash, previous_hint, previous_until, created_at, revoked_at`

// Keys implements org.Store.
func (r *Reader) Keys(ctx context.Context, orgID string) ([]org.Key, error) {
	keys, err := list(ctx, r.db, scanKey, `SELECT `+keyColumns+` FROM api_keys WHERE org = ? ORDER BY created_at, id`, orgID)
	return keys, r.wrap("list keys", err)
}

// KeysAfter implements org.Store.
func (r *Reader) KeysAfter(ctx context.Context, orgID string, after org.KeyPlace, limit int) ([]org.Key, error) {
	keys, err := list(ctx, r.db, scanKey, `SELECT `+keyColumns+` FROM api_keys INDEXED BY api_keys_created
		WHERE org = ? AND (created_at, id) > (?, ?) ORDER BY created_at, id LIMIT ?`, orgID, after.CreatedAt, after.ID, limit)
	return keys, r.wrap("list keys", err)
}

// Key implements org.Store.
func (r *Reader) Key(ctx context.Context, orgID, id string) (org.Key, error) {
	k, err := scanKey(r.db.QueryRowContext(ctx, `SELECT `+keyColumns+` FROM api_keys WHERE org = ? AND id = ?`, orgID, id))
	if errors.Is(err, sql.ErrNoRows) {
		err = org.ErrNotFound
	}
	if err != nil {
		return org.Key{}, fmt.Errorf("key %s: %w", id, r.wrap("read a key", err))
	}
	return k, nil
}

// OrgOfKey returns the org of the key with the hash, which may be revoked, or org.ErrNotFound.
func (r *Reader) OrgOfKey(ctx context.Context, hash [sha256.Size]byte) (orgID string, err error) {
	err = r.db.QueryRowContext(ctx, `SELECT org FROM api_keys WHERE hash = ?`, hash[:]).Scan(&orgID)
	if errors.Is(err, sql.ErrNoRows) {
		return "", org.ErrNotFound
	}
	return orgID, r.wrap("find a key", err)
}

// CreateKey implements org.Store.
func (s *Store) CreateKey(ctx context.Context, k org.Key, by org.Author) error {
	return s.write(ctx, k.Org, "create a key", "key "+k.ID, func(t *tx) error {
		if err := t.mustExist(k.Org); err != nil {
			return err
		}
		if err := t.checkCap(t.caps.Keys, t.caps.KeysError, `SELECT count(*) FROM api_keys WHERE org = ? AND revoked_at = 0`, k.Org); err != nil {
			return err
		}
		if err := t.checkName(k); err != nil {
			return err
		}
		access, err := json.Marshal(k.Access)
		if err != nil {
			return err
		}
		_, err = t.exec(`INSERT INTO api_keys (`+keyColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			k.Org, k.ID, k.Name, string(k.Role), k.Hash[:], k.Hint, k.Rate.PerMinute, k.Rate.Burst, string(access), millis(k.ExpiresAt),
			previousHash(k), k.Previous.Hint, millis(k.Previous.Until), millis(k.CreatedAt), millis(k.RevokedAt))
		if err != nil {
			return err
		}
		return t.record(k.Org, by, by.KeyChanged(nil, &k))
	})
}

// UpdateKey implements org.Store.
func (s *Store) UpdateKey(ctx context.Context, was, k org.Key, by org.Author) error {
	return s.write(ctx, k.Org, "update a key", "key "+k.ID, func(t *tx) error {
		before, err := t.key(k.Org, k.ID)
		if err != nil {
			return err
		}
		if !before.SameSettings(was) {
			return org.ErrChanged
		}
		if k.Name != before.Name {
			if err := t.checkName(k); err != nil {
				return err
			}
		}
		after := before
		after.Name, after.Role, after.Rate, after.Access, after.ExpiresAt = k.Name, k.Role, k.Rate, k.Access, k.ExpiresAt
		access, err := json.Marshal(k.Access)
		if err != nil {
			return err
		}
		if err := requireFound(t.exec(`UPDATE api_keys SET name = ?, role = ?, requests_per_minute = ?, burst = ?, access = ?, expires_at = ? WHERE org = ? AND id = ?`,
			k.Name, string(k.Role), k.Rate.PerMinute, k.Rate.Burst, string(access), millis(k.ExpiresAt), k.Org, k.ID)); err != nil {
			return err
		}
		return t.record(k.Org, by, by.KeyChanged(&before, &after))
	})
}

// RotateKey implements org.Store.
func (s *Store) RotateKey(ctx context.Context, was, k org.Key, by org.Author) error {
	return s.write(ctx, k.Org, "rotate a key", "key "+k.ID, func(t *tx) error {
		before, err := t.key(k.Org, k.ID)
		if err != nil {
			return err
		}
		if before.Hash != was.Hash || !before.SameSettings(was) {
			return org.ErrChanged
		}
		after := before
		after.Hash, after.Hint, after.Previous = k.Hash, k.Hint, k.Previous
		if err := requireFound(t.exec(`UPDATE api_keys SET hash = ?, hint = ?, previous_hash = ?, previous_hint = ?, previous_until = ? WHERE org = ? AND id = ?`,
			k.Hash[:], k.Hint, previousHash(k), k.Previous.Hint, millis(k.Previous.Until), k.Org, k.ID)); err != nil {
			return err
		}
		return t.record(k.Org, by, by.KeyChanged(&before, &after))
	})
}

// previousHash returns the hash of the key's previous secret; nil = there is none.
func previousHash(k org.Key) []byte {
	if k.Previous.Until.IsZero() {
		return nil
	}
	return k.Previous.Hash[:]
}

// checkName returns org.ErrNameTaken if another active key of the org has the name of k.
func (t *tx) checkName(k org.Key) error {
	if k.Name == "" {
		return nil
	}
	var n int
	if err := t.queryRow(`SELECT count(*) FROM api_keys WHERE org = ? AND revoked_at = 0 AND name = ? AND id <> ?`, []any{k.Org, k.Name, k.ID}, &n); err != nil {
		return err
	}
	if n > 0 {
		return org.ErrNameTaken
	}
	return nil
}

// key returns the key in the transaction.
func (t *tx) key(orgID, id string) (org.Key, error) {
	return queryOne(t, scanKey, `SELECT `+keyColumns+` FROM api_keys WHERE org = ? AND id = ?`, orgID, id)
}

// RevokeKey implements org.Store.
func (s *Store) RevokeKey(ctx context.Context, orgID, id string, at int64, by org.Author) error {
	return s.write(ctx, orgID, "revoke a key", "key "+id, func(t *tx) error {
		before, err := t.key(orgID, id)
		if err != nil || !before.RevokedAt.IsZero() {
			return err
		}
		after := before
		after.RevokedAt = time.UnixMilli(at)
		if err := requireFound(t.exec(`UPDATE api_keys SET revoked_at = ? WHERE org = ? AND id = ?`, at, orgID, id)); err != nil {
			return err
		}
		if err := t.deleteOldRevoked(orgID); err != nil {
			return err
		}
		if err := t.deleteSessions(orgID, id); err != nil {
			return err
		}
		return t.record(orgID, by, by.KeyChanged(&before, &after))
	})
}

// deleteOldRevoked deletes the oldest revoked keys of the org, so that at most caps.Keys
// of them are kept.
func (t *tx) deleteOldRevoked(orgID string) error {
	if t.caps.Keys == 0 {
		return nil
	}
	_, err := t.exec(`DELETE FROM api_keys WHERE _rowid_ IN (SELECT _rowid_ FROM api_keys
		WHERE org = ? AND revoked_at > 0 ORDER BY revoked_at DESC, created_at DESC, id DESC LIMIT 9223372036854775807 OFFSET ?)`,
		orgID, t.caps.Keys)
	return err
}

func scanKey(row scanner) (org.Key, error) {
	var k org.Key
	var hash, previous, access []byte
	err := row.Scan(&k.Org, &k.ID, &k.Name, &k.Role, &hash, &k.Hint, &k.Rate.PerMinute, &k.Rate.Burst, &access, asTime{&k.ExpiresAt},
		&previous, &k.Previous.Hint, asTime{&k.Previous.Until}, asTime{&k.CreatedAt}, asTime{&k.RevokedAt})
	if err != nil {
		return k, err
	}
	if copy(k.Hash[:], hash) != len(k.Hash) {
		return k, fmt.Errorf("key %s: the stored hash has %d bytes", k.ID, len(hash))
	}
	copy(k.Previous.Hash[:], previous)
	known := json.NewDecoder(bytes.NewReader(access))
	known.DisallowUnknownFields()
	if known.Decode(&k.Access) != nil { // damaged, or a limit of another version: it must not be ignored
		k.Access = org.NoAccess()
	}
	return k, nil
}
