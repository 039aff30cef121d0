// Package memory implements those of the store's ports in memory that the library runs on, and the simulator of
// [internal/sim]. Everything is lost when the process ends. Sizes are limited; the oldest entries are dropped first.
//
//	journal.Journal, journal.Archive   Journal     the last MaxRuns runs, the last MaxSubmitKeys
//	journal.Leases, journal.Slices                 keys and MaxAuditRows audit rows, and what was
//	                                               spent of each budget
//	journal.Conversations          Conversations   the last MaxConversations
//	agent.Sessions                 Sessions        everything
//
// What a gateway has besides is stored by package database alone: orgs, keys, servers, secrets, agents, tools, files,
// webhooks and their messages, cached results, and sums of usage.
//
// The zero values are ready to use and safe for concurrent use.
package memory
