package memory_test

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/internal/store/storetest"
)

func TestStore(t *testing.T) {
	capped := func(_ *testing.T, c storetest.Clocks, caps org.Caps) storetest.Store {
		outbox := &memory.Outbox{Now: c.Wall, Caps: caps}
		journal := &memory.Journal{Now: c.Wall, LeaseNow: c.Leases, Caps: caps, Outbox: outbox}
		conversations := &memory.Conversations{Now: c.Wall, Caps: caps}
		journal.Conversations = conversations
		orgs := &memory.Orgs{Caps: caps, Audit: journal, Conversations: conversations, Outbox: outbox}
		return storetest.Store{Orgs: orgs, Agents: orgs, Sessions: &memory.Sessions{Orgs: orgs, Journal: journal, Conversations: conversations}, Journal: journal, Archive: journal, Slices: journal, Leases: journal, Conversations: conversations, Results: orgs, Audit: journal, LaterDeleter: journal, Sweep: journal.Sweep, Webhooks: orgs, Outbox: outbox, HookMessages: journal, Files: orgs}
	}
	open := func(t *testing.T, c storetest.Clocks) storetest.Store { return capped(t, c, org.Caps{}) }
	storetest.Run(t, storetest.Maker{Open: open, Capped: capped})
}
