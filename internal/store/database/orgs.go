package database

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

const orgColumns = `id, features, runtime, created_at, updated_at`

// Orgs implements org.Store.
func (r *Reader) Orgs(ctx context.Context) ([]org.Record, error) {
	orgs, err := list(ctx, r.db, scanOrg, `SELECT `+orgColumns+` FROM orgs ORDER BY id`)
	return orgs, r.wrap("list orgs", err)
}

// OrgIDs returns the ids of all orgs of which anything is stored, ordered: also of
// deleted orgs that still have runs or audit rows. The operator's audit chain is not one.
func (r *Reader) OrgIDs(ctx context.Context) ([]string, error) {
	ids, err := list(ctx, r.db, scanText, `WITH RECURSIVE ran (org) AS (
			SELECT min(org) FROM runs
			UNION ALL SELECT (SELECT min(org) FROM runs WHERE org > ran.org) FROM ran WHERE ran.org IS NOT NULL)
		SELECT id FROM orgs
		UNION SELECT org FROM ran WHERE org IS NOT NULL
		UNION SELECT org FROM audit_log GROUP BY org
		UNION SELECT org FROM audit_checkpoints GROUP BY org ORDER BY 1`)
	return slices.DeleteFunc(ids, func(id string) bool { return id == org.Operator }), r.wrap("list the ids of orgs", err)
}

func scanText(row scanner) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}

// EachOrg implements org.Store. Five queries run side by side in one transaction, all in
// the order of the orgs.
func (r *Reader) EachOrg(ctx context.Context, each func(org.Contents) error) error {
	tx, err := r.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return r.wrap("read all orgs", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	records, err := list(ctx, tx, scanOrg, `SELECT `+orgColumns+` FROM orgs ORDER BY id`)
	if err != nil {
		return r.wrap("read all orgs", err)
	}
	keys := openGroups(ctx, tx, r.server, scanKey, func(k org.Key) string { return k.Org },
		`SELECT `+keyColumns+` FROM api_keys ORDER BY org, created_at, id`)
	defer keys.close()
	servers := openGroups(ctx, tx, r.server, scanServer, func(m org.MCPServer) string { return m.Org },
		`SELECT `+serverColumns+` FROM mcp_outbound_servers ORDER BY org, position, name`)
	defer servers.close()
	secrets := openGroups(ctx, tx, r.server, scanSecret, func(s org.Secret) string { return s.Org },
		`SELECT `+secretColumns+` FROM secrets ORDER BY org, name`)
	defer secrets.close()
	off := openGroups(ctx, tx, r.server, scanSwitch, func(s switchedOff) string { return s.org }, `SELECT org, name FROM mcp_servers_off ORDER BY org, name`)
	defer off.close()
	for _, record := range records {
		c := org.Contents{Record: record, Keys: keys.take(record.ID), Servers: servers.take(record.ID), Secrets: secrets.take(record.ID)}
		for _, s := range off.take(record.ID) {
			c.Off = append(c.Off, s.name)
		}
		if err := errors.Join(keys.err, servers.err, secrets.err, off.err); err != nil {
			return r.wrap("read all orgs", fmt.Errorf("org %s: %w", record.ID, err))
		}
		if err := each(c); err != nil {
			return err
		}
	}
	return nil
}

// AddOrgs implements org.Store.
func (s *Store) AddOrgs(ctx context.Context, orgs []org.Record) error {
	if len(orgs) == 0 {
		return nil
	}
	return s.write(ctx, noOrg, "add orgs", "orgs", func(t *tx) error {
		for _, r := range orgs {
			features, runtime, err := encodeOrg(r)
			if err != nil {
				return fmt.Errorf("org %s: %w", r.ID, err)
			}
			if _, err := t.org(r.ID); !errors.Is(err, org.ErrNotFound) {
				if err != nil {
					return err
				}
				continue
			}
			if err := t.claimOrg(r.ID, s.now().UnixMilli()); err != nil {
				return err
			}
			if _, err := t.exec(`INSERT INTO orgs (id, features, runtime, created_at, updated_at) VALUES (?, ?, ?, ?, ?)`,
				r.ID, features, runtime, millis(r.CreatedAt), millis(r.UpdatedAt)); err != nil {
				return err
			}
			t.raise(r.ID)
		}
		return nil
	})
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
	return s.write(ctx, r.ID, "create an org", "org "+r.ID, func(t *tx) error {
		switch _, err := t.org(r.ID); {
		case err == nil:
			return org.ErrExists
		case !errors.Is(err, org.ErrNotFound):
			return err
		}
		if err := t.claimOrg(r.ID, s.now().UnixMilli()); err != nil {
			return err
		}
		_, err := t.exec(`INSERT INTO orgs (id, features, runtime, created_at, updated_at) VALUES (?, ?, ?, ?, ?)`,
			r.ID, features, runtime, millis(r.CreatedAt), millis(r.UpdatedAt))
		if err != nil {
			return err
		}
		return t.record(r.ID, by, by.OrgChanged(nil, &r))
	})
}

// UpdateOrg implements org.Store.
func (s *Store) UpdateOrg(ctx context.Context, was, r org.Record, by org.Author) error {
	features, runtime, err := encodeOrg(r)
	if err != nil {
		return fmt.Errorf("org %s: %w", r.ID, err)
	}
	return s.write(ctx, r.ID, "update an org", "org "+r.ID, func(t *tx) error {
		before, err := t.org(r.ID)
		switch {
		case err != nil:
			return err
		case !before.Same(was):
			return org.ErrChanged
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
	return s.write(ctx, id, "delete an org", "org "+id, func(t *tx) error {
		before, err := t.org(id)
		if err != nil {
			return err
		}
		if err := requireFound(t.exec(`DELETE FROM orgs WHERE id = ?`, id)); err != nil {
			return err
		}
		t.receivers.changed(id)
		if _, err := t.exec(`DELETE FROM hook_messages WHERE org = ?`, id); err != nil {
			return err
		}
		if _, err := t.exec(`INSERT INTO deleted_orgs (org, deleted_at) VALUES (?, ?)
			ON CONFLICT (org) DO UPDATE SET deleted_at = excluded.deleted_at`, id, s.now().UnixMilli()); err != nil {
			return err
		}
		return t.record(id, by, by.OrgChanged(&before, nil))
	})
}

// claimOrg returns an *org.LeftError if anything is stored of a deleted org with the id that
// a new one could read. Otherwise it deletes the rest.
func (t *tx) claimOrg(id string, now int64) error {
	left, err := t.leftOf(id, now)
	if err != nil || len(left) > 0 {
		return cmp.Or[error](err, &org.LeftError{Org: id, Left: left})
	}
	return t.dropOrg(id)
}

// leftOf returns what is stored of the org's runs, conversations and audit rows.
func (t *tx) leftOf(id string, now int64) (left []string, err error) {
	for _, one := range []struct {
		name, query string
		args        []any
	}{
		{org.LeftRuns, `SELECT EXISTS (SELECT 1 FROM runs WHERE org = ?)`, []any{id}},
		{org.LeftConversations, `SELECT EXISTS (SELECT 1 FROM conversations WHERE org = ? AND expires_at > ?)`, []any{id, now}},
		{org.LeftAudit, `SELECT EXISTS (SELECT 1 FROM audit_log WHERE org = ?)`, []any{id}},
	} {
		var found bool
		if err := t.queryRow(one.query, one.args, &found); err != nil {
			return nil, err
		}
		if found {
			left = append(left, one.name)
		}
	}
	return left, nil
}

// dropOrg deletes what does not keep the id of a deleted org from use: its budgets, which
// no run uses any more, its sums of usage, and that it was deleted.
func (t *tx) dropOrg(id string) error {
	for _, text := range []string{
		`DELETE FROM reservations WHERE org = ?`,
		`DELETE FROM slices WHERE org = ?`,
		`DELETE FROM budgets WHERE org = ?`,
		`DELETE FROM submit_keys WHERE org = ?`,
		`DELETE FROM usage_sums WHERE org = ?`,
		`DELETE FROM usage_models WHERE org = ?`,
		`DELETE FROM usage_days WHERE org = ?`,
		`DELETE FROM deleted_orgs WHERE org = ?`,
	} {
		if _, err := t.exec(text, id); err != nil {
			return err
		}
	}
	return nil
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
	t.raise(orgID)
	return nil
}

// raise says that what an org has was changed: it gets a new epoch before the commit, if other processes are to see it.
func (t *tx) raise(orgID string) {
	if t.remote != nil {
		t.raised = append(t.raised, orgID)
	}
}

// storeEpoch gives what was changed its epoch. The row of the epoch is the last thing that the transaction locks.
func (t *tx) storeEpoch() error {
	if len(t.raised) == 0 {
		return nil
	}
	if err := t.queryRow(`UPDATE settings_epoch SET epoch = epoch + 1 RETURNING epoch`, nil, &t.made); err != nil {
		return err
	}
	slices.Sort(t.raised)
	for _, orgID := range slices.Compact(t.raised) {
		if _, err := t.exec(`INSERT INTO settings_changes (org, epoch) VALUES (?, ?)
			ON CONFLICT (org) DO UPDATE SET epoch = excluded.epoch`, orgID, t.made); err != nil {
			return err
		}
	}
	return nil
}

// write performs a write of an org on the resource that what names. It waits for the result
// even after ctx has ended, because a queued write cannot be cancelled and the caller
// must know whether it was made.
func (s *Store) write(ctx context.Context, orgID, op, what string, do func(*tx) error) error {
	one := &write{awaited: true, org: orgID, do: func(t *tx) error {
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
