// Package database implements the store's ports on one SQLite file: orgs, keys, MCP
// servers and secrets; the journals of runs with their leases, budgets and audit
// rows; conversations; and cached tool results.
//
//	Append ──┐  head of the run: journal.Head.Admit
//	Claim  ──┼─► queue ─► writer: at most 100 writes or 20 ms
//	Save   ──┘              BEGIN · the writes · COMMIT, one fsync
//	                          a slot? the key? room in the budget?
//	                                        │
//	Runs, Load, Orgs, … ◄── read pool ◄── file (WAL)
//
// One goroutine writes. It commits the queued writes as one transaction, so that they
// share one fsync (group commit). If a write fails, the transaction is performed again with a
// savepoint for each write, so that it does not affect the others. What the writes add to tables
// that no other write reads is stored by one statement for several writes (see later). The
// facts and rows that a write adds to a light run are one row (see pack.go). Most callers wait for the commit. An append with
// Sync unset does not wait: it is held back for up to 50 ms and written together with the next
// batches of its run. Its error is returned by the next append to the run.
//
// The rules for heads, leases, openings and budgets are those of package run (journal.Head,
// journal.Opening, journal.Used); this package stores the results. Where an UPDATE applies a rule
// to many rows or without reading them, a comment names the rule.
//
// Conditions that concurrent runs compete for (the last slot, a key, the rest of a
// budget) are checked in the transaction of the write. A refused write has no effect.
//
// A full disk refuses writes until there is space. If the disk does not confirm a
// write, data may be lost, and the store refuses all writes: see [ErrPoisoned].
//
// One process at a time may open the file. A lock file beside it enforces that.
// Opening the file expires the leases of the previous process. Commands that only
// read use [OpenReader], which takes no lock.
//
//	s, err := sqlite.Open(ctx, sqlite.Options{Path: "turnpike-data/turnpike.db"})
//	if err != nil { … }
//	defer s.Close()
//	err = s.CreateOrg(ctx, org.Record{ID: "acme"}, org.Author{})
package database
