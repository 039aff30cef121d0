package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// Save implements run.Handovers.
func (s *Store) Save(ctx context.Context, orgID, principal string, h run.Handover) error {
	ids := slices.Sorted(maps.Keys(h.CallIDs))
	if len(ids) == 0 {
		return nil // nobody could ask for it
	}
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false) // items stay as they were said
	if err := e.Encode(h); err != nil {
		return fmt.Errorf("handover of run %s: %w", h.RunID, err)
	}
	now := s.now()
	err := s.writer.perform(ctx, func(t *tx) error {
		if _, err := t.exec(`DELETE FROM handovers WHERE expires_at <= ?`, now.UnixMilli()); err != nil {
			return err
		}
		_, err := t.exec(`INSERT INTO handovers (org, principal, id, run_id, body, expires_at) VALUES (?, ?, ?, ?, ?, ?)`,
			orgID, principal, ids[0], h.RunID, body.String(), now.Add(run.HandoverTTL).UnixMilli())
		for _, id := range ids {
			if err != nil {
				break
			}
			_, err = t.exec(`INSERT INTO handover_calls (org, principal, call_id, handover) VALUES (?, ?, ?, ?)`, orgID, principal, id, ids[0])
		}
		if taken(err) {
			return fmt.Errorf("handover of run %s: %w", h.RunID, org.ErrExists)
		}
		return err
	})
	return wrap("save a handover", err)
}

// Find implements run.Handovers.
func (s *Store) Find(ctx context.Context, orgID, principal, callID string) (*run.Handover, error) {
	var body []byte
	err := s.db.QueryRowContext(ctx, `SELECT h.body FROM handover_calls c
		JOIN handovers h ON h.org = c.org AND h.principal = c.principal AND h.id = c.handover
		WHERE c.org = ? AND c.principal = ? AND c.call_id = ? AND h.expires_at > ?`,
		orgID, principal, callID, s.now().UnixMilli()).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	} else if err != nil {
		return nil, wrap("find a handover", err)
	}
	var h run.Handover
	if err := json.Unmarshal(body, &h); err != nil {
		return nil, wrap("find a handover", err)
	}
	return &h, nil
}
