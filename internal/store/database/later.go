package database

import "github.com/turnpike-gateway/turnpike/internal/audit"

// later is what writes add to tables from which no other write of the transaction reads. It
// is stored before the commit, or before the savepoint of a write ends: the facts, rows
// and audit rows of several runs with one statement each.
type later struct {
	facts []laterFact
	rows  []laterRow
	audit []audit.Row
	bytes map[string]int64 // usage, by org
	sums  usageSums
}

type laterFact struct {
	key runKey
	fact
}

type laterRow struct {
	key runKey
	row
}

func (l *later) add(key runKey, facts []fact, rows []row) {
	for _, f := range facts {
		l.facts = append(l.facts, laterFact{key, f})
	}
	for _, r := range rows {
		l.rows = append(l.rows, laterRow{key, r})
	}
}

func (l *later) addUsage(orgID string, bytes int) {
	if l.bytes == nil {
		l.bytes = map[string]int64{}
	}
	l.bytes[orgID] += int64(bytes)
}

// forget empties l and keeps its room.
func (l *later) forget() {
	clear(l.facts)
	clear(l.rows)
	clear(l.audit)
	clear(l.bytes)
	l.sums.forget()
	l.facts, l.rows, l.audit = l.facts[:0], l.rows[:0], l.audit[:0]
	if cap(l.facts)+cap(l.rows)+cap(l.audit)+cap(l.sums.all) > maxLater {
		*l = later{}
	}
}

// maxLater is how many rows later has room for between transactions.
const maxLater = 1024

// laterAudit appends the entries to the org's chain. If the write is rolled back, so are the
// rows.
func (t *tx) laterAudit(orgID string, entries []audit.Entry) (err error) {
	t.later.audit, err = t.nextRows(t.later.audit, orgID, entries)
	return err
}

// storeLater stores t.later.
func (t *tx) storeLater() error {
	defer t.later.forget()
	if err := t.insertFacts(t.later.facts); err != nil {
		return err
	}
	if err := t.insertRows(t.later.rows); err != nil {
		return err
	}
	for orgID, bytes := range t.later.bytes {
		if err := t.addUsage(orgID, int(bytes), 0, 0); err != nil {
			return err
		}
	}
	if err := t.insertAudit(t.later.audit); err != nil {
		return err
	}
	return t.storeSums()
}

// A body is bound as bytes, which the cast does not copy: a string would be a copy of it.
const (
	insertFact = `INSERT INTO run_facts (org, run_id, seq, epoch, kind, call_key, attempt, at, v, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, CAST(? AS TEXT))`
	insertRow  = `INSERT INTO run_rows (org, run_id, ref, body, rest) VALUES (?, ?, ?, CAST(? AS TEXT), ?)`
)

// insertFacts stores facts, several per statement.
func (t *tx) insertFacts(facts []laterFact) error {
	for some := range insertParts(facts, t.together()) {
		args := make([]any, 0, 10*len(some))
		for i := range some {
			f := &some[i]
			var call any // NULL
			if f.callKey != "" {
				call = string(f.callKey)
			}
			args = append(args, f.key.org, f.key.run, f.Seq, f.Epoch, f.kind, call, f.attempt, f.At, f.Version, f.body)
		}
		_, err := t.exec(t.insert(insertFact, len(some)), args...)
		switch {
		case isUniqueViolation(err) && len(some) == 1: // of several, the database does not say which: see singly
			return name{some[0].kind, string(some[0].callKey), some[0].attempt}.exists()
		case err != nil:
			return err
		}
	}
	return nil
}

// insertRows stores rows, several per statement.
func (t *tx) insertRows(rows []laterRow) error {
	for some := range insertParts(rows, t.together()) {
		args := make([]any, 0, 5*len(some))
		for i := range some {
			r := &some[i]
			args = append(args, r.key.org, r.key.run, r.ref, r.body, r.rest.digest())
		}
		_, err := t.exec(t.insert(insertRow, len(some)), args...)
		switch {
		case isUniqueViolation(err) && len(some) == 1:
			return name{nameOfRow, some[0].ref, 0}.exists()
		case err != nil:
			return err
		}
	}
	return nil
}
