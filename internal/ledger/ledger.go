// Package ledger says what a store of package turnpike is to its agents.
package ledger

import "github.com/turnpike-gateway/turnpike/internal/journal"

// Ledger is a store as agents use it.
type Ledger interface {
	journal.Journal
	journal.Archive
	journal.Leases
	journal.Picker
	journal.Conversations
	journal.Effects
	journal.LaterDeleter

	// OnClose has f called when the store is closed, before its file is.
	OnClose(f func())
}
