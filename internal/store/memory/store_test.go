package memory_test

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/internal/store/storetest"
)

func TestStore(t *testing.T) {
	capped := func(_ *testing.T, c storetest.Clocks, caps org.Caps) storetest.Store {
		j := &memory.Journal{Now: c.Wall, LeaseNow: c.Leases, Caps: caps}
		conversations := &memory.Conversations{Now: c.Wall, Caps: caps}
		j.Conversations = conversations
		return storetest.Store{
			Sessions: &memory.Sessions{Journal: j, Conversations: conversations},
			Journal:  j, Archive: j, Slices: j, Leases: j, Conversations: conversations, LaterDeleter: j, Sweep: j.Sweep,
		}
	}
	open := func(t *testing.T, c storetest.Clocks) storetest.Store { return capped(t, c, org.Caps{}) }
	storetest.Run(t, storetest.Maker{RunsOnly: true, Open: open, Capped: capped})
}
