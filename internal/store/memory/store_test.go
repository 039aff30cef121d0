package memory_test

import (
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/internal/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Maker{Open: func(_ *testing.T, now func() time.Time) storetest.Store {
		journal := &memory.Journal{Now: now}
		orgs := &memory.Orgs{}
		return storetest.Store{Orgs: orgs, Journal: journal, Archive: journal, Leases: journal, Handovers: &memory.Handovers{Now: now}, Results: orgs, Audit: journal}
	}})
}
