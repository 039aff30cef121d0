package storetest

import (
	"encoding/json"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func auditCases() []rule { // B06
	return []rule{
		{"an audit row is stored with its batch", "in the order of the batches, numbered per org", auditRows},
		{"a refused batch leaves no audit row", "and no gap in the numbers", auditOfRefused},
		{"audit rows belong to their org", "each org has its own numbers and cannot read the rows of another", foreignAudit},
		{"audit rows of 64 concurrent runs have no gaps", "even if some batches are refused", auditRace},
		{"an audit entry that is not JSON is refused with its batch", "nothing may happen that cannot be recorded", auditNoJSON},
	}
}

func auditEntry(kind audit.Kind, at int64, n int) audit.Entry {
	return audit.Entry{Kind: kind, At: at, Body: map[string]any{"n": n, "text": "<é> & \"\""}}
}

// auditRows fails the case unless the run's rows have these numbers, and returns them.
func (b *testBench) auditRows(orgID, runID string, want ...int64) []audit.Row {
	b.Helper()
	rows, err := b.Archive.AuditRows(b.Context(), orgID, audit.Query{RunID: runID})
	b.ok(err)
	var numbers []int64
	for _, row := range rows {
		numbers = append(numbers, row.Number)
	}
	if !slices.Equal(numbers, want) {
		b.Errorf("run %s of org %s has the audit rows %d, want %d", runID, orgID, numbers, want)
	}
	return rows
}

func auditRows(b *testBench) {
	a, other := b.begin("a", "r"), b.begin("a", "other")
	b.auditRows("a", "r")
	b.ok(a.append(b.Context(), journal.Batch{Sync: true, Audit: []audit.Entry{auditEntry("one", 5, 1), auditEntry("two", 4, 2)}}, input("x")))
	b.ok(other.append(b.Context(), journal.Batch{Sync: true, Audit: []audit.Entry{auditEntry("three", 6, 3)}}))
	b.ok(a.append(b.Context(), journal.Batch{Audit: []audit.Entry{auditEntry("four", 7, 4)}}))
	b.ok(a.append(b.Context(), journal.Batch{Sync: true}))
	rows := b.auditRows("a", "r", 1, 2, 4)
	b.auditRows("a", "other", 3)
	var body struct {
		N    int
		Text string
	}
	b.ok(json.Unmarshal(rows[1].Body, &body))
	if row := rows[1]; row.RunID != "r" || row.At != 4 || row.Kind != "two" || body.N != 2 || body.Text != "<é> & \"\"" {
		b.Errorf("the second row is %+v %s", row, row.Body)
	}
	rows[0].Body[0] = 'x'
	b.ok(json.Unmarshal(b.auditRows("a", "r", 1, 2, 4)[0].Body, &body)) // the change above was made to a copy
}

func auditOfRefused(b *testBench) {
	a := b.begin("a", "r")
	a.write(started("0.0", 1))
	rows := []audit.Entry{auditEntry("one", 1, 1)}
	b.checkError(a.append(b.Context(), journal.Batch{Sync: true, Audit: rows}, started("0.0", 1)), org.ErrExists)
	over := journal.Batch{Sync: true, Audit: rows, Reservations: []journal.Reservation{hold("0.1", "s", tokens(1), tokens(2))}}
	b.checkOverBudget(a.append(b.Context(), over, input("x")), "s")
	late := *a
	late.facts = a.facts[:1]
	b.checkBehind(late.append(b.Context(), journal.Batch{Sync: true, Audit: rows}, input("x")), a.facts[1:]...)
	full := journal.Batch{Sync: true, Audit: rows, Opening: &journal.Opening{Slots: 1}}
	b.checkError(b.author("a", "other").append(b.Context(), full, accepted("a", "other")), journal.ErrNoSlot)
	b.auditRows("a", "r")
	b.auditRows("a", "other")
	b.ok(a.append(b.Context(), journal.Batch{Sync: true, Audit: rows}, input("x")))
	b.auditRows("a", "r", 2) // row 1 says that the budget is exceeded
}

func foreignAudit(b *testBench) {
	for _, orgID := range []string{"a", "b"} {
		a := b.begin(orgID, "r")
		b.ok(a.append(b.Context(), journal.Batch{Sync: true, Audit: []audit.Entry{auditEntry(audit.Kind(orgID), 1, 1)}}))
	}
	for _, orgID := range []string{"a", "b"} {
		if rows := b.auditRows(orgID, "r", 1); rows[0].Kind != audit.Kind(orgID) {
			b.Errorf("org %s has the row %+v", orgID, rows[0])
		}
	}
	b.auditRows("c", "r")
	b.auditRows("a", "nobody's")
}

func auditRace(b *testBench) {
	const runs, rounds = 64, 5
	var group errgroup.Group
	for i := range runs {
		a := b.begin("a", fmt.Sprint("run ", i))
		group.Go(func() error {
			for n := range rounds {
				batch := journal.Batch{Sync: n%2 == 0, Audit: []audit.Entry{auditEntry("k", 1, n)}}
				if err := a.append(b.Context(), batch, started("0.0", n+1)); err != nil {
					return err
				}
				batch.Sync = true
				if i%3 == 0 && a.append(b.Context(), batch, started("0.0", n+1)) == nil {
					return fmt.Errorf("a repeated start of a call was accepted")
				}
			}
			return a.append(b.Context(), journal.Batch{Sync: true})
		})
	}
	b.ok(group.Wait())
	var numbers []int64
	for i := range runs {
		rows, err := b.Archive.AuditRows(b.Context(), "a", audit.Query{RunID: fmt.Sprint("run ", i)})
		b.ok(err)
		for _, row := range rows {
			numbers = append(numbers, row.Number)
		}
	}
	slices.Sort(numbers)
	for i, n := range numbers {
		if n != int64(i+1) {
			b.Fatalf("the numbers are %d", numbers)
		}
	}
	if len(numbers) != runs*rounds {
		b.Errorf("%d rows, want %d", len(numbers), runs*rounds)
	}
}

func auditNoJSON(b *testBench) {
	a := b.begin("a", "r")
	bad := audit.Entry{Kind: "k", Body: func() {}}
	if a.append(b.Context(), journal.Batch{Sync: true, Audit: []audit.Entry{auditEntry("k", 1, 1), bad}}, input("x")) == nil {
		b.Error("the batch was accepted")
	}
	b.auditRows("a", "r")
	a.checkStored()
}
