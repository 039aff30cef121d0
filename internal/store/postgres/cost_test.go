package postgres_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// An append is one transaction with a statement for each table that it changes. Each statement is a round trip.
func TestStatementsOfAnAppend(t *testing.T) {
	r := newReplicas(t, 1, org.Caps{})
	r.withOrgs("a")
	w := &watcher{}
	s := r.watched(w, org.Caps{})
	body := audit.Request{Surface: audit.SurfaceRelay, Model: "m", Status: audit.OK, InputTokens: 1}
	entry := audit.Entry{Kind: audit.KindRequest, At: r.wall.Load(), Principal: "p", Body: body}
	window := budget.Window{Scope: "s", Limit: budget.Amount{Tokens: 1000}}
	reservation := journal.Reservation{ID: "1", Budget: window, Amount: budget.Amount{Tokens: 1}}
	for _, grade := range grades() {
		opening := &journal.Opening{Slots: 5, Key: &journal.SubmitKey{Principal: "p", Key: string(grade), Hash: "h"}}
		settled := journal.Batch{Settled: []journal.Settled{{ID: "1"}}, Audit: []audit.Entry{entry}}
		p := r.pen(s, "a", string(grade))
		for _, one := range []struct {
			name  string
			most  int // statements
			batch journal.Batch
			body  loop.Body
		}{
			{"open", 6, journal.Batch{}, p.accepted(grade)},
			{"open with slots and a key", 9, journal.Batch{Opening: opening}, nil},
			{"a fact", 6, journal.Batch{}, input("x")},
			{"facts and a row", 8, journal.Batch{Rows: []journal.Row{{Ref: "row", Value: 1}}}, input("x")},
			{"a reservation", 9, journal.Batch{Reservations: []journal.Reservation{reservation}}, input("x")},
			{"the end of a call: settled, with an audit row", 12, settled, input("x")},
			{"the end", 7, journal.Batch{}, finish()},
		} {
			to := p
			body := one.body
			if body == nil {
				to = r.pen(s, "a", "other "+string(grade))
				body = to.accepted(grade)
			}
			w.take()
			one.batch.Sync = true
			r.ok(to.append(one.batch, body))
			// Once for a connection.
			seen := slices.DeleteFunc(w.take(), func(text string) bool { return strings.HasPrefix(text, `SELECT CAST(pg_postmaster_start_time()`) })
			if len(seen) > one.most {
				t.Errorf("%s, %s: more than %d statements", grade, one.name, one.most)
			}
			for i, text := range seen {
				text = strings.Join(strings.Fields(text), " ")
				seen[i] = text[:min(len(text), 70)]
			}
			t.Logf("%s, %s: %d statements\n\t%s", grade, one.name, len(seen), strings.Join(seen, "\n\t"))
		}
	}
}
