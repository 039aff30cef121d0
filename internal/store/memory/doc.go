// Package memory implements the store's ports in memory, for as long as the
// process lives and within fixed bounds: what is oldest goes first.
//
//	run.Journal, run.Archive   Journal     the last MaxRuns runs that have ended, the
//	run.Leases                             last MaxSubmitKeys keys and MaxAuditRows audit
//	                                       rows, and what was spent of each budget
//	run.Handovers              Handovers   the last MaxHandovers
//	org.Store                  Orgs        all of it
//	toolcache.Store            Orgs        as much as its caller says
//
// The zero values are ready to use, also by several goroutines at once.
package memory
