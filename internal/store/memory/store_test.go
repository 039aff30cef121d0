package memory_test

import (
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/internal/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Maker{Open: func(_ *testing.T, now func() time.Time) storetest.Store {
		journal := &memory.Journal{}
		return storetest.Store{Orgs: &memory.Orgs{}, Journal: journal, Archive: journal, Handovers: &memory.Handovers{Now: now}}
	}})
}
