// Package ledger says what a store, and an audit log, of package turnpike is to its agents.
package ledger

import (
	"context"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
)

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

// Recorder is an audit log of an org as agents use it.
type Recorder interface {
	// Ready returns why nothing that a caller does can be recorded; nil = it can.
	Ready(caller string) error

	// Record records an entry a little later, in the order of the calls. An entry that cannot be recorded is logged.
	Record(ctx context.Context, e audit.Entry)
}
