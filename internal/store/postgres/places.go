package postgres

import (
	"context"
	"database/sql"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
)

// forgetPlace is after how long without use the place of a session of code is deleted. Its files have gone a long time before.
const forgetPlace = 30 * 24 * time.Hour

// Places keeps in which replica's data directory each session of code is. It implements the port of package sandbox.
type Places struct{ db *sql.DB }

var _ sandbox.Places = Places{}

// NewPlaces returns Places.
func NewPlaces(db *sql.DB) Places { return Places{db} }

// Take implements sandbox.Places.
func (p Places) Take(ctx context.Context, org, session, place string) (before string, err error) {
	err = p.db.QueryRowContext(ctx, `INSERT INTO code_places AS c (org, session, place, used_at) VALUES ($1, $2, $3, `+nowMillis+`)
		ON CONFLICT (org, session) DO UPDATE SET was = c.place, place = excluded.place, used_at = excluded.used_at
		RETURNING was`, org, session, place).Scan(&before)
	return before, err
}

// Forget implements sandbox.Places.
func (p Places) Forget(ctx context.Context, org string, sessions []string) error {
	_, err := p.db.ExecContext(ctx, `DELETE FROM code_places WHERE org = $1 AND session = ANY($2)`, org, sessions)
	return err
}

// At implements sandbox.Places. Of the sessions that no place has used for 30 days, it forgets at most 10,000.
func (p Places) At(ctx context.Context, place string) (found []sandbox.Placed, err error) {
	if _, err := p.db.ExecContext(ctx, `DELETE FROM code_places WHERE (org, session) IN (
			SELECT org, session FROM code_places WHERE used_at < `+nowMillis+` - $1::bigint ORDER BY used_at LIMIT 10000)`,
		forgetPlace.Milliseconds()); err != nil {
		return nil, err
	}
	rows, err := p.db.QueryContext(ctx, `SELECT org, session FROM code_places WHERE place = $1`, place)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s sandbox.Placed
		if err := rows.Scan(&s.Org, &s.Session); err != nil {
			return nil, err
		}
		found = append(found, s)
	}
	return found, rows.Err()
}
