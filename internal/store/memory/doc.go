// Package memory implements the store's ports in memory. Everything is lost when the
// process ends. Sizes are limited; the oldest entries are dropped first.
//
//	journal.Journal, journal.Archive   Journal     the last MaxRuns runs, the last MaxSubmitKeys
//	journal.Leases                             keys and MaxAuditRows audit rows, and what was
//	                                       spent of each budget, and MaxUsageSums sums of usage
//	journal.Conversations          Conversations   the last MaxConversations
//	journal.Branches               Conversations   those of a Journal with Conversations
//	org.Store                  Orgs        everything
//	agent.Store                Orgs        everything
//	journal.Webhooks           Orgs        everything, in its Outbox
//	journal.Outbox             Outbox      as many messages as the caps allow
//	toolcache.Store            Orgs        within the bounds that the caller passes
//
// The zero values are ready to use and safe for concurrent use.
package memory
