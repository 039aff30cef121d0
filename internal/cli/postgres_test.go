package cli

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/installation"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
	"github.com/turnpike-gateway/turnpike/internal/store/postgres/postgrestest"
)

const masterKey = "q2pV0S0j5m7J4O0w1hYk3XrT9bZcUeNfGdLa8iQxRzs="

// onPostgres runs commands of a gateway whose database has the URL.
type onPostgres struct {
	t    *testing.T
	file string
	env  map[string]string
}

func newOnPostgres(t *testing.T, databaseURL, more string) onPostgres {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "t.yaml")
	text := "database: env:DB\nmaster_key: env:MK\ndata: " + filepath.Join(dir, "data") + "\nproviders: [{name: demo, kind: demo, models: " +
		"[demo]}]\n" + more
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return onPostgres{t, file, map[string]string{"DB": databaseURL, "MK": masterKey}}
}

// run runs a command with the configuration, and returns what it said and its exit status. It never says the password.
func (o onPostgres) run(args ...string) (string, int) {
	o.t.Helper()
	var out strings.Builder
	status := Main(o.t.Context(), Process{Args: append(args, "--config", o.file), Stdout: &out, Stderr: &out,
		Env: func(name string) (string, bool) {
			v, ok := o.env[name]
			return v, ok
		}})
	if strings.Contains(out.String(), "CANARY") {
		o.t.Errorf("%v: the password is shown:\n%s", args, out.String())
	}
	return out.String(), status
}

func contains(t *testing.T, said, want string) {
	t.Helper()
	if !strings.Contains(said, want) {
		t.Errorf("%q is missing in\n%s", want, said)
	}
}

// config returns the configuration.
func (o onPostgres) config(t *testing.T) *config.Config {
	t.Helper()
	c, err := config.Load(o.file, func(name string) (string, bool) { v, ok := o.env[name]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestABackupOnPostgresIsPgDumps(t *testing.T) { // O05
	noLeaks(t)
	o := newOnPostgres(t, "postgres://gate:CANARY@db.example.com:5432/turn'pike?sslmode=verify-full", `postgres: {schema: gate}
audit: {key: "env:MK", checkpoints: /mnt/checkpoints}
orgs: [{id: acme, runtime: {buckets: [{name: docs, kind: s3, bucket: files-of-acme, access_key: "env:MK", secret_key: "env:MK"},
	{name: here}, {name: there, kind: database}]}}]
`)
	said, status := o.run("backup", "monday.dump")
	if status != nothingCopied {
		t.Errorf("exit status %d", status)
	}
	for _, want := range []string{
		"Nothing was copied: the data is in PostgreSQL.",
		`  pg_dump --schema=gate -Fc --file=monday.dump 'postgres://gate@db.example.com:5432/turn'\''pike?sslmode=verify-full'` + "\n",
		"the configuration " + o.file, "master_key (env:MK)", "audit.key (env:MK)", "audit.checkpoints (/mnt/checkpoints)",
		"the bucket docs of the org acme, in S3 (files-of-acme)", "the bucket here of the org acme, in the data directory",
	} {
		contains(t, said, want)
	}
	if _, err := os.Stat("monday.dump"); err == nil || strings.Contains(said, "there of") {
		t.Errorf("%v\n%s", err, said)
	}
	said, status = o.run("restore", "monday.dump")
	if status != 1 || strings.Count(strings.TrimSpace(said), "\n") != 0 {
		t.Errorf("exit status %d: %s", status, said)
	}
	contains(t, said, "pg_restore")
	o.env["DB"] = "mysql://u:CANARY@h/d"
	if said, status = o.run("backup", "monday.dump"); status != 1 {
		t.Errorf("exit status %d: %s", status, said)
	}
	contains(t, said, "database: is not a URL of PostgreSQL")
}

// No command takes the data directory for the data of a gateway on PostgreSQL.
func TestCommandsDoNotReadSQLiteWhereADatabaseIsNamed(t *testing.T) {
	noLeaks(t)
	o := newOnPostgres(t, "postgres://gate:CANARY@127.0.0.1:1/d?sslmode=disable", "")
	for _, args := range [][]string{{"runs", "list"}, {"mcp", "list"}, {"audit", "list"}, {"audit", "verify"}, {"audit", "key"}, {"usage"},
		{"serve"}} {
		said, status := o.run(args...)
		if status == 0 || !strings.Contains(said, "127.0.0.1") || strings.Contains(said, "turnpike.db") {
			t.Errorf("%v: exit status %d: %s", args, status, said)
		}
	}
}

func TestDoctorExaminesPostgres(t *testing.T) {
	noLeaks(t)
	at := postgrestest.New(t)
	o := newOnPostgres(t, withPassword(t, at.URL), "postgres: {schema: "+at.Schema+"}\n")
	said, _ := o.run("doctor")
	contains(t, said, "well       postgres version: PostgreSQL ")
	contains(t, said, "well       postgres encoding: UTF8")
	contains(t, said, "well       postgres notifications: what is sent over database is heard")
	contains(t, said, "not tried  postgres schema: the schema "+at.Schema+" has no tables yet")
	contains(t, said, "not tried  postgres secrets: no gateway has stored any yet")
	contains(t, said, "postgres store: can be reached; no gateway has stored anything yet")
	if said, status := o.run("runs", "list"); status != 1 || !strings.Contains(said, "no gateway has stored anything in the database yet") {
		t.Errorf("exit status %d: %s", status, said)
	}
	if _, err := postgres.Migrate(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	if said, status := o.run("audit", "key"); status != 1 || !strings.Contains(said, "no gateway has made a key") {
		t.Errorf("exit status %d: %s", status, said)
	}
	own, err := visitPostgres(t.Context(), o.config(t), secret.NewResolver(func(name string) (string, bool) {
		v,
			ok := o.env[name]
		return v, ok
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	keys, err := installation.Open(t.Context(), own.Secrets(), installation.Configured{Master: secret.NewValue(masterKey)})
	if err != nil {
		t.Fatal(err)
	}
	said, _ = o.run("doctor")
	contains(t, said, "well       postgres secrets: master_key")
	contains(t, said, "well       postgres store: can be reached, and the store with 0 orgs can be read")
	contains(t, said, "well       postgres schema: "+at.Schema+" has version ")
	if said, status := o.run("audit", "key"); status != 0 || strings.TrimSpace(said) != audit.EncodePublicKey(keys.Audit) {
		t.Errorf("exit status %d: %s", status, said)
	}
	o.env["MK"] = "n8vK1uYw3cRtB6mZ0sQeXaJ5hLfGdPoI9rTyUiWq2E4="
	said, status := o.run("doctor")
	contains(t, said, "wrong      postgres secrets: master_key: is not that of the installation")
	if status != 1 {
		t.Errorf("exit status %d", status)
	}
}

// withPassword returns the URL with a password, which the server does not ask for.
func withPassword(t *testing.T, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(u.User.Username(), "CANARY")
	return u.String()
}
