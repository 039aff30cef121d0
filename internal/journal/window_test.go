package journal_test

import (
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
)

// What is spent in one day or month is nothing to the next, in UTC. // P03
func TestWindows(t *testing.T) {
	at := func(text string) int64 {
		when, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return when.UnixMilli()
	}
	for _, tt := range []struct {
		shared budget.Shared
		at     string
		scope  string
		ends   string // "" = never
	}{
		{budget.Shared{Scope: budget.ScopeOf(budget.ScopeOrg, "")}, "2026-11-25T23:59:59Z", "org/total", ""},
		{budget.Shared{Scope: budget.ScopeOf(budget.ScopeOrg, ""), Period: budget.Day}, "2026-11-25T23:59:59+02:00", "org/day/2026-11-25", "2026-11-26T00:00:00Z"},
		{budget.Shared{Scope: budget.ScopeOf(budget.ScopeOrg, ""), Period: budget.Day}, "2026-11-26T00:00:00Z", "org/day/2026-11-26", "2026-11-27T00:00:00Z"},
		{budget.Shared{Scope: budget.ScopeOf(budget.ScopeKey, "k"), Period: budget.Month}, "2026-12-31T23:00:00-02:00", "key/k/month/2027-01", "2027-02-01T00:00:00Z"},
		{budget.Shared{Scope: budget.ScopeOf(budget.ScopeEndUser, "a/day b"), Period: budget.Month}, "2026-12-31T00:00:00Z", "end_user/a%2Fday b/month/2026-12", "2027-01-01T00:00:00Z"},
	} {
		w := journal.WindowAt(tt.shared, at(tt.at))
		var ends int64
		if tt.ends != "" {
			ends = at(tt.ends)
		}
		if w.EndsAt != ends {
			t.Errorf("%s ends at %d, want %d", w.Scope, w.EndsAt, ends)
		}
		if w.Scope != tt.scope {
			t.Errorf("got %s, want %s", w.Scope, tt.scope)
		}
		kind, id, _, _, ok := budget.ParseWindow(w.Scope)
		if again := budget.ScopeOf(kind, id); !ok || again != tt.shared.Scope {
			t.Errorf("%s is read as %s", w.Scope, again)
		}
	}
}
