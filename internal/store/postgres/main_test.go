package postgres_test

import (
	"database/sql"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres/postgrestest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns connections to the store.
func open(t *testing.T, o postgres.Options) *sql.DB {
	t.Helper()
	c, err := o.Connector()
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	t.Cleanup(func() { db.Close() })
	return db
}

// migrated returns a schema with the tables, and connections to it.
func migrated(t *testing.T) (postgres.Options, *sql.DB) {
	t.Helper()
	o := postgrestest.New(t)
	if _, err := postgres.Migrate(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	return o, open(t, o)
}

// rows returns the rows of a query, each as its first column.
func rows(t *testing.T, db *sql.DB, query string, args ...any) []string {
	t.Helper()
	found, err := db.QueryContext(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	var all []string
	for found.Next() {
		var s string
		if err := found.Scan(&s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
