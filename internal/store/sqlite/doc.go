// Package sqlite implements the store's ports on one SQLite file: orgs, keys,
// MCP servers and secrets, the journals of runs with their leases, budgets and audit
// rows, handovers, and what tools have answered.
//
//	Append ──┐  head of the run: fenced? behind?
//	Claim  ──┼─► queue ─► writer: at most 100 writes or 20 ms
//	Save   ──┘              BEGIN · a savepoint for each · COMMIT, one fsync
//	                          a slot? the key? room in the budget?
//	                                        │
//	Runs, Load, Orgs, … ◄── read pool ◄── file (WAL)
//
// One goroutine writes. It commits what has come together as one transaction,
// so that many writers share one fsync; a write that fails is rolled back to its
// savepoint and leaves its neighbours alone. Who must know waits for the commit;
// an append with Sync unset does not, and its failure is returned by the next
// append to its run.
//
// What several runs want at the same time (the last slot, one key, the rest of a
// budget) is judged in the savepoint of the write that asks for it. A refusal is
// the answer to that write alone, and leaves nothing behind.
//
// A disk that is full refuses writes until there is room. One that does not
// confirm them may have lost them, and ends all writing: see [ErrPoisoned].
//
// The file belongs to one process at a time, kept by a lock beside it: when it is
// opened, the leases of the process before have ended. Commands that only read
// use [OpenReader], which needs no lock and disturbs nobody.
//
//	s, err := sqlite.Open(ctx, sqlite.Options{Path: "turnpike-data/turnpike.db"})
//	if err != nil { … }
//	defer s.Close()
//	err = s.CreateOrg(ctx, org.Record{ID: "acme"}, org.Author{})
package sqlite
