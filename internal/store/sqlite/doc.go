// Package sqlite implements the store's ports on one SQLite file: orgs, keys
// and MCP servers, the journals of runs, and handovers.
//
//	Append ──┐  head of the run: fenced? behind?
//	Save   ──┼─► queue ─► writer: at most 100 writes or 20 ms
//	Create ──┘              BEGIN · a savepoint for each · COMMIT, one fsync
//	                                        │
//	Runs, Load, Orgs, … ◄── read pool ◄── file (WAL)
//
// One goroutine writes. It commits what has come together as one transaction,
// so that many writers share one fsync; a write that fails is rolled back to its
// savepoint and leaves its neighbours alone. Who must know waits for the commit;
// an append with Sync unset does not, and its failure is returned by the next
// append to its run.
//
// The file belongs to one process at a time, kept by a lock beside it. Commands
// that only read use [OpenReader], which needs no lock and disturbs nobody.
//
//	s, err := sqlite.Open(ctx, sqlite.Options{Path: "turnpike-data/turnpike.db"})
//	if err != nil { … }
//	defer s.Close()
//	err = s.CreateOrg(ctx, org.Record{ID: "acme"})
package sqlite
