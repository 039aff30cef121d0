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
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// Save implements run.Handovers.
func (s *Store) Save(ctx context.Context, orgID, principal string, h run.Handover) error {
	ids := slices.Sorted(maps.Keys(h.CallIDs))
	if len(ids) == 0 {
		return nil // without call ids it cannot be found
	}
	var body bytes.Buffer
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false) // items are stored unchanged
	if err := e.Encode(h); err != nil {
		return fmt.Errorf("handover of run %s: %w", h.RunID, err)
	}
	now := s.now()
	var dropped int64
	err := s.writer.perform(ctx, func(t *tx) error {
		if _, err := t.exec(`DELETE FROM handovers WHERE rowid IN (SELECT rowid FROM handovers WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)`,
			now.UnixMilli(), sweepBatch); err != nil {
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
		if isUniqueViolation(err) {
			return fmt.Errorf("handover of run %s: %w", h.RunID, org.ErrExists)
		}
		if err == nil {
			err = t.addUsage(orgID, sizeOfHandover+body.Len()+len(ids)*sizeOfHandoverCall, 1)
		}
		if err == nil {
			dropped, err = t.evictHandovers(orgID)
		}
		return err
	})
	if err == nil && dropped > 0 {
		s.reportEvicted(orgID)
	}
	return s.wrap("save a handover", err)
}

// reportEvicted logs that handovers of an org were deleted early, at most once an
// hour.
func (s *Store) reportEvicted(orgID string) {
	now, last := s.now().UnixMilli(), s.evictedReported.Load()
	if now-last < time.Hour.Milliseconds() || !s.evictedReported.CompareAndSwap(last, now) {
		return
	}
	s.log.Warn("an org has more handovers than org_caps.handovers allows; the oldest are deleted before they expire", "org", orgID)
}

// evictHandovers deletes the oldest handovers of an org above its cap, and returns
// how many. The new handover is not refused, because its run has already ended; the
// oldest is the least likely to be needed.
func (t *tx) evictHandovers(orgID string) (int64, error) {
	if t.caps.Handovers == 0 {
		return 0, nil
	}
	_, n, err := t.usage(orgID)
	if excess := n - int64(t.caps.Handovers); err == nil && excess > 0 {
		return t.exec(`DELETE FROM handovers WHERE rowid IN (SELECT rowid FROM handovers WHERE org = ? ORDER BY expires_at, rowid LIMIT ?)`,
			orgID, min(excess, sweepBatch))
	}
	return 0, err
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
		return nil, s.wrap("find a handover", err)
	}
	var h run.Handover
	if err := json.Unmarshal(body, &h); err != nil {
		return nil, s.wrap("find a handover", err)
	}
	return &h, nil
}
