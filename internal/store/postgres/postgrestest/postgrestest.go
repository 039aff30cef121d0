// Package postgrestest gives tests a schema of their own on a PostgreSQL server.
package postgrestest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
)

// Variable is the environment variable with the URL of the server. Without it, tests are skipped.
const Variable = "TURNPIKE_TEST_POSTGRES_URL"

// New creates an empty schema, which is dropped with all that is in it when the test ends. The test is skipped if there is
// no server.
func New(t testing.TB) postgres.Options {
	t.Helper()
	o := postgres.Options{URL: os.Getenv(Variable)}
	if o.URL == "" {
		t.Skip(Variable + " is not set: there is no server for this test")
	}
	o.Schema = "tp_test_" + strings.ToLower(rand.Text())
	o.LockTimeout = 10 * time.Second
	Exec(t, o, `CREATE SCHEMA `+o.Schema)
	t.Cleanup(func() { Exec(t, o, `SET client_min_messages = error; DROP SCHEMA IF EXISTS `+o.Schema+` CASCADE`) })
	return o
}

// Exec executes statements in the schema, on a connection of its own.
func Exec(t testing.TB, o postgres.Options, statements string) {
	t.Helper()
	c, err := o.Connector()
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	defer db.Close()
	if _, err := db.ExecContext(context.WithoutCancel(t.Context()), statements); err != nil {
		t.Error(err)
	}
}
