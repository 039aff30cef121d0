package postgres_test

import (
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
)

func TestPlacesOfCodeSessions(t *testing.T) {
	t.Parallel()
	_, db := migrated(t)
	p := postgres.NewPlaces(db)
	take := func(org, session, place, want string) {
		t.Helper()
		if before, err := p.Take(t.Context(), org, session, place); err != nil || before != want {
			t.Errorf("%s of %s was at %q, %v; want %q", session, org, before, err, want)
		}
	}
	at := func(place string, want ...sandbox.Placed) {
		t.Helper()
		got, err := p.At(t.Context(), place)
		slices.SortFunc(got, func(a, b sandbox.Placed) int { return len(a.Session) - len(b.Session) })
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("at %s are %v, %v; want %v", place, got, err, want)
		}
	}
	take("acme", "s", "a", "")
	take("acme", "s", "a", "a")
	take("acme", "s", "b", "a")
	take("acme", "s", "a", "b")
	take("acme", "second", "a", "")
	take("beta", "third", "b", "")
	at("a", sandbox.Placed{Org: "acme", Session: "s"}, sandbox.Placed{Org: "acme", Session: "second"})
	if err := p.Forget(t.Context(), "acme", []string{"s", "third"}); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE code_places SET used_at = 1 WHERE session = 'second'`); err != nil {
		t.Fatal(err)
	}
	at("a")
	at("b", sandbox.Placed{Org: "beta", Session: "third"})
	take("acme", "s", "b", "")
	take("acme", "second", "b", "")
}
