package storetest

import (
	"crypto/ed25519"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
)

// AuditLog is the part of a store that only the audit log uses.
type AuditLog interface {
	audit.Log
	journal.Recorder
}

func auditLogCases() []rule { // P09 L11 L13
	return []rule{
		{"the chain is valid after concurrent writes", "of batches, relays and refused batches", chainHolds},
		{"rows are selected by each field", "run, request, key, kind, time and number, alone and combined", findRows},
		{"a query returns at most MaxRows", "a large log is read in pages", boundedQuery},
		{"a query with Bytes ends with the row that reaches them", "an export holds little", sizedQuery},
		{"the heads are the last rows of all chains", "each with its latest checkpoint", auditHeads},
		{"a checkpoint is stored once", "a second one for the row changes nothing", keepCheckpoint},
		{"retention leaves a chain that verifies", "and its numbers continue", pruneChain},
		{"a checkpoint without Pruned removes nothing", "only a signed record of a removal may remove rows", pruneRefuses},
	}
}

// signer is the key that the cases sign with.
func signer() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)) }

func (b *testBench) record(orgID string, e audit.Entry) {
	b.Helper()
	b.ok(b.Audit.Record(b.Context(), orgID, e))
}

// rows fails the case unless q selects want rows, and returns them. It first adds a
// checkpoint, which forces earlier records to be written.
func (b *testBench) rows(orgID string, q audit.Query, want int) []audit.Row {
	b.Helper()
	b.ok(b.Audit.SyncAudit(b.Context()))
	rows, err := b.Audit.AuditRows(b.Context(), orgID, q)
	b.ok(err)
	if len(rows) != want {
		b.Fatalf("org %s has %d rows of %+v, want %d", orgID, len(rows), q, want)
	}
	return rows
}

// verifyChain fails the case unless the org's chain verifies.
func (b *testBench) verifyChain(orgID string) audit.Report {
	b.Helper()
	report, err := audit.Verify(b.Context(), orgID, b.Audit, signer().Public().(ed25519.PublicKey), nil)
	b.ok(err)
	if len(report.Findings) > 0 {
		b.Errorf("org %s: %v", orgID, report.Findings)
	}
	return report
}

func chainHolds(b *testBench) {
	const writers, each = 8, 40
	var group errgroup.Group
	for i := range writers {
		a := b.begin("a", fmt.Sprint("run ", i))
		group.Go(func() error {
			for n := range each {
				batch := journal.Batch{Sync: n%3 == 0, Audit: []audit.Entry{auditEntry("k", int64(n), n), auditEntry("l", int64(n), n)}}
				if err := a.append(b.Context(), batch, started("0.0", n+1)); err != nil {
					return err
				}
				batch.Sync = true
				if n%5 == 0 && a.append(b.Context(), batch, started("0.0", n+1)) == nil {
					return fmt.Errorf("a repeated start of a call was accepted")
				}
				if err := b.Audit.Record(b.Context(), []string{"a", "b"}[n%2], auditEntry("relay", int64(n), n)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	b.ok(group.Wait())
	b.rows("a", audit.Query{After: writers*each*2 + writers*each/2 - 1}, 1)
	b.rows("b", audit.Query{After: writers*each/2 - 1}, 1)
	if r := b.verifyChain("a"); r.Rows != writers*each*5/2 || r.First != 1 || r.Last != r.Rows {
		b.Errorf("%+v", r)
	}
	b.verifyChain("b")
}

func findRows(b *testBench) {
	a := b.begin("a", "r")
	entries := []audit.Entry{
		{Kind: "k", At: 10, Principal: "p", RequestID: "r", Body: 1},
		{Kind: "l", At: 20, Principal: "p", RequestID: "r.1", Body: 2},
		{Kind: "k", At: 30, Principal: "q", RequestID: "r.1", Body: 3},
	}
	b.ok(a.append(b.Context(), journal.Batch{Sync: true, Audit: entries}))
	b.record("a", audit.Entry{Kind: "k", At: 40, Principal: "p", RequestID: "req", Body: 4})
	b.record("b", audit.Entry{Kind: "k", At: 40, Principal: "p", RequestID: "req", Body: 5})
	b.rows("b", audit.Query{}, 1)
	b.rows("a", audit.Query{}, 4)
	for _, c := range []struct {
		q    audit.Query
		want []int64
	}{
		{audit.Query{RunID: "r"}, []int64{1, 2, 3}},
		{audit.Query{RequestIDs: []string{"r.1"}}, []int64{2, 3}},
		{audit.Query{RequestIDs: []string{"req"}}, []int64{4}},
		{audit.Query{RequestIDs: []string{"none", "r", "req"}}, []int64{1, 4}},
		{audit.Query{Principal: "p"}, []int64{1, 2, 4}},
		{audit.Query{Kind: "k"}, []int64{1, 3, 4}},
		{audit.Query{From: 20, To: 40}, []int64{2, 3}},
		{audit.Query{From: 20, Kind: "k", Principal: "p"}, []int64{4}},
		{audit.Query{After: 2}, []int64{3, 4}},
		{audit.Query{After: 1, Limit: 1}, []int64{2}},
		{audit.Query{Latest: true, Limit: 3}, []int64{4, 3, 2}},
		{audit.Query{Latest: true, Before: 3, RunID: "r"}, []int64{2, 1}},
		{audit.Query{Before: 3}, []int64{1, 2}},
		{audit.Query{RunID: "req"}, nil},
		{audit.Query{RunID: "r", RequestIDs: []string{"req"}}, nil},
	} {
		var got []int64
		for _, row := range b.rows("a", c.q, len(c.want)) {
			got = append(got, row.Number)
		}
		if !slices.Equal(got, c.want) {
			b.Errorf("%+v: rows %d, want %d", c.q, got, c.want)
		}
	}
	row := b.rows("a", audit.Query{RequestIDs: []string{"req"}}, 1)[0]
	if row.Org != "a" || row.RunID != "" || row.Principal != "p" || row.At != 40 || string(row.Body) != "4" || row.Hash == (audit.Hash{}) {
		b.Errorf("%+v", row)
	}
}

func boundedQuery(b *testBench) {
	var group errgroup.Group
	group.SetLimit(64)
	for n := range audit.MaxRows + 50 {
		group.Go(func() error { return b.Audit.Record(b.Context(), "a", auditEntry("k", 1, n)) })
	}
	b.ok(group.Wait())
	b.rows("a", audit.Query{After: audit.MaxRows}, 50)
	b.rows("a", audit.Query{}, audit.MaxRows)
	b.rows("a", audit.Query{Limit: audit.MaxRows + 1}, audit.MaxRows)
	b.rows("a", audit.Query{Limit: 7}, 7)
}

func sizedQuery(b *testBench) { // K07
	for n := range 5 {
		b.record("a", audit.Entry{Kind: "k", At: 1, Principal: "p", RequestID: "req", Body: strings.Repeat("x", 1000*(n+1))})
	}
	first := b.rows("a", audit.Query{Bytes: 1}, 1)
	size := first[0].Size()
	b.rows("a", audit.Query{Bytes: size}, 1)
	b.rows("a", audit.Query{Bytes: size + 1}, 2)
	b.rows("a", audit.Query{Bytes: 1 << 20}, 5)
	b.rows("a", audit.Query{Bytes: 1 << 20, Limit: 3}, 3)
	if rows := b.rows("a", audit.Query{After: 2, Bytes: 1, Kind: "k"}, 1); rows[0].Number != 3 {
		b.Errorf("row %d, want 3", rows[0].Number)
	}
}

func auditHeads(b *testBench) {
	heads, err := b.Audit.AuditHeads(b.Context())
	checkEmpty(b, heads, err)
	for n := range 3 {
		b.record("b", auditEntry("k", int64(n+1), n))
		b.record("a", auditEntry("k", int64(n+1), n))
	}
	rows := b.rows("a", audit.Query{}, 3)
	b.rows("b", audit.Query{}, 3)
	c := audit.Checkpoint{Org: "a", Number: 2, Hash: rows[1].Hash, At: 9}.Sign(signer())
	b.ok(b.Audit.AddCheckpoint(b.Context(), c))
	heads, err = b.Audit.AuditHeads(b.Context())
	b.ok(err)
	b.equal(heads[0], audit.Head{Org: "a", Number: 3, At: 3, Hash: rows[2].Hash, Signed: 2, SignedAt: 9})
	if len(heads) != 2 || heads[1].Org != "b" || heads[1].Number != 3 || heads[1].Signed != 0 {
		b.Errorf("%+v", heads)
	}
}

func keepCheckpoint(b *testBench) {
	b.record("a", auditEntry("k", 1, 1))
	row := b.rows("a", audit.Query{}, 1)[0]
	c := audit.Checkpoint{Org: "a", Number: 1, Hash: row.Hash, At: 9}.Sign(signer())
	later := audit.Checkpoint{Org: "a", Number: 1, Hash: row.Hash, At: 10}.Sign(signer())
	b.ok(b.Audit.AddCheckpoint(b.Context(), c))
	b.ok(b.Audit.AddCheckpoint(b.Context(), later))
	got, err := b.Audit.Checkpoints(b.Context(), "a", 0, 10)
	b.ok(err)
	b.equal(got, []audit.Checkpoint{c})
	got, err = b.Audit.Checkpoints(b.Context(), "a", 1, 10)
	checkEmpty(b, got, err)
	got, err = b.Audit.Checkpoints(b.Context(), "b", 0, 10)
	checkEmpty(b, got, err)
	if r := b.verifyChain("a"); r.Checkpoints != 1 || r.SignedTo != 1 {
		b.Errorf("%+v", r)
	}
}

func pruneChain(b *testBench) {
	for n := range 1200 {
		b.record("a", auditEntry("k", int64(n+1), n))
		b.record("b", auditEntry("k", int64(n+1), n))
	}
	b.rows("b", audit.Query{After: 1000}, 200)
	rows := b.rows("a", audit.Query{After: 1000}, 200)
	old := audit.Checkpoint{Org: "a", Number: 1001, Hash: rows[0].Hash, At: 9}.Sign(signer())
	b.ok(b.Audit.AddCheckpoint(b.Context(), old))
	cut := audit.Checkpoint{Org: "a", Number: 1100, Hash: rows[99].Hash, At: 10, Pruned: true}.Sign(signer())
	removed, err := b.Audit.PruneAudit(b.Context(), cut)
	b.ok(err)
	if removed != 1100 {
		b.Errorf("%d rows were removed, want 1100", removed)
	}
	if r := b.verifyChain("a"); r.First != 1101 || r.Rows != 100 || r.Checkpoints != 1 {
		b.Errorf("%+v", r)
	}
	b.rows("b", audit.Query{Limit: 1000}, 1000)
	b.verifyChain("b")
	cut = audit.Checkpoint{Org: "a", Number: 1200, Hash: rows[199].Hash, At: 11, Pruned: true}.Sign(signer())
	_, err = b.Audit.PruneAudit(b.Context(), cut)
	b.ok(err)
	b.record("a", auditEntry("k", 1, 1))
	if row := b.rows("a", audit.Query{}, 1)[0]; row.Number != 1201 {
		b.Errorf("the next number is %d, want 1201", row.Number)
	}
	b.verifyChain("a")
}

func pruneRefuses(b *testBench) {
	b.record("a", auditEntry("k", 1, 1))
	row := b.rows("a", audit.Query{}, 1)[0]
	if _, err := b.Audit.PruneAudit(b.Context(), audit.Checkpoint{Org: "a", Number: 1, Hash: row.Hash}.Sign(signer())); err == nil {
		b.Error("a checkpoint without Pruned removed rows")
	}
	b.rows("a", audit.Query{}, 1)
}
