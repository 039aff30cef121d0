package postgres_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
)

func TestOptionsThatCannotBeHonouredAreRefused(t *testing.T) {
	const secret = "sw0rdfish"
	for _, c := range []struct {
		options postgres.Options
		says    string
	}{
		{postgres.Options{URL: ""}, "it is not a URL of PostgreSQL: write postgres://user@host/database"},
		{postgres.Options{URL: "mysql://u:sw0rdfish@h/d"}, "it is not a URL of PostgreSQL"},
		{postgres.Options{URL: "postgres://h/d"}, "the URL has no user"},
		{postgres.Options{URL: "postgres://u:sw0rdfish@/d"}, "the URL has no host"},
		{postgres.Options{URL: "postgres://u:sw0rdfish@h"}, "the URL has no database"},
		{postgres.Options{URL: "postgres://u:sw0rdfish@h:port/d"}, "check host, port and parameters"},
		{postgres.Options{URL: "postgres://u:sw0rdfish@h:1:2/d"}, "check host, port and parameters"},
		{postgres.Options{URL: "postgres://u:%zzsw0rdfish@h/d"}, "check host, port and parameters"},
		{postgres.Options{URL: "postgres://u:sw0rdfish#x@h/d"}, `the URL has a fragment`},
		{postgres.Options{URL: "postgres://u:sw0rdfish@h/d?%zz"}, `its parameters cannot be read`},
		{postgres.Options{URL: "postgres://u:sw0rdfish@h/d?search_path=x"}, `the parameter "search_path" cannot be set in the URL`},
		{postgres.Options{URL: "postgres://u:sw0rdfish@h/d?options=-c"}, `the parameter "options" cannot be set in the URL`},
		{postgres.Options{URL: "postgres://u:sw0rdfish@h/d?service=x"}, `the parameter "service" cannot be set in the URL`},
		{postgres.Options{URL: "postgres://u@h/d?password=a&password=sw0rdfish"}, `the parameter "password" is given twice`},
		{postgres.Options{URL: "postgres://u@h/d?sslmode=verify-full&sslrootcert=/missing"}, "/missing"},
		{postgres.Options{URL: "postgres://u:sw0rdfish@h/d?target_session_attrs=any"}, "target_session_attrs is not read-write"},
		{postgres.Options{URL: "postgres://u@h/d", Pooler: "session"}, `postgres.pooler is "session": set it to none, transaction or prepared`},
		{postgres.Options{URL: "postgres://u@h/d", Migrate: "later"}, `postgres.migrate is "later": set it to start or never`},
		{postgres.Options{URL: "postgres://u@h/d", Schema: "pg_mine"}, `belongs to the server`},
		{postgres.Options{URL: "postgres://u@h/d", Schema: strings.Repeat("x", 64)}, `at most 63 bytes`},
		{postgres.Options{URL: "postgres://u@h/d", Pool: -1}, `postgres.pool is negative`},
		{postgres.Options{URL: "postgres://u@h/d", LockTimeout: -1}, `is negative`},
		{postgres.Options{URL: "postgres://u@h/d", LockTimeout: time.Microsecond}, `part of a millisecond`},
		{postgres.Options{URL: "postgres://u@h/d", ListenURL: "postgres://u@h/d"}, `postgres.pooler says that there is none`},
	} {
		_, err := c.options.Connector()
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), secret) {
			t.Errorf("%+v: error %v, want one that says %q", c.options, err, c.says)
		}
	}
}

func TestTheURLDecidesAndNotTheEnvironment(t *testing.T) {
	for name, value := range map[string]string{
		"PGHOST": "elsewhere", "PGPORT": "9", "PGUSER": "nobody", "PGPASSWORD": "secret", "PGDATABASE": "other", "PGSSLMODE": "disable",
		"PGAPPNAME": "x", "PGOPTIONS": "-c search_path=x", "PGTZ": "Asia/Tokyo", "PGTARGETSESSIONATTRS": "any", "PGSSLROOTCERT": "/missing",
		"PGCONNECT_TIMEOUT": "77", "PGSSLCERT": "/missing", "PGSSLKEY": "/missing", "PGMINPROTOCOLVERSION": "3.2", "PGREQUIREAUTH": "none",
	} {
		t.Setenv(name, value)
	}
	const prepared = pgx.QueryExecModeCacheStatement
	session := map[string]string{
		"application_name": "turnpike", "client_encoding": "UTF8", "jit": "off", "statement_timeout": "10000", "lock_timeout": "3000",
		"idle_in_transaction_session_timeout": "2000",
	}
	for _, c := range []struct {
		options postgres.Options
		address string
		tls     string // the name that the server must have; "-" = any or none
		params  map[string]string
		mode    pgx.QueryExecMode
	}{
		{postgres.Options{URL: "postgres://u@db.example.com/d"}, "db.example.com:5432", "db.example.com", session, prepared},
		{postgres.Options{URL: "postgres://u@db.example.com:6/d?sslmode=require"}, "db.example.com:6", "-", session, prepared},
		{postgres.Options{URL: "postgresql://u@127.0.0.1/d"}, "127.0.0.1:5432", "-", session, prepared},
		{postgres.Options{URL: "postgres://u@[::1]/d"}, "::1:5432", "-", session, prepared},
		{postgres.Options{URL: "postgres://u@127.0.0.1,db.example.com/d"}, "127.0.0.1:5432", "127.0.0.1", session, prepared},
		{postgres.Options{URL: "postgres://u@/d?host=/run/db"}, "/run/db:5432", "-", session, prepared},
		{
			postgres.Options{
				URL: "postgres://u@localhost/d?application_name=mine", Schema: `a"b`, StatementTimeout: time.Minute, LockTimeout: time.Second,
			}, "localhost:5432", "-", map[string]string{
				"application_name": "mine", "client_encoding": "UTF8", "jit": "off", "search_path": `"a""b"`,
				"statement_timeout": "60000", "lock_timeout": "1000", "idle_in_transaction_session_timeout": "2000",
			}, prepared,
		},
		{
			postgres.Options{URL: "postgres://u@localhost/d", Schema: "s", Pooler: postgres.PoolerTransaction},
			"localhost:5432", "-", map[string]string{"application_name": "turnpike"}, pgx.QueryExecModeCacheDescribe,
		},
		{
			postgres.Options{URL: "postgres://u@localhost/d", Schema: "s", Pooler: postgres.PoolerPrepared},
			"localhost:5432", "-", map[string]string{"application_name": "turnpike"}, prepared,
		},
	} {
		got, err := c.options.Config()
		if err != nil {
			t.Errorf("%s: %v", c.options.URL, err)
			continue
		}
		if got.User != "u" || got.Password != "" || got.Database != "d" || got.ConnectTimeout != 5*time.Second || got.ValidateConnect == nil {
			t.Errorf("%s: %+v", c.options.URL, got.Config)
		}
		if address := got.Host + ":" + strconv.Itoa(int(got.Port)); address != c.address {
			t.Errorf("%s: address %s, want %s", c.options.URL, address, c.address)
		}
		if c.tls != "-" && (got.TLSConfig == nil || got.TLSConfig.InsecureSkipVerify || got.TLSConfig.ServerName != c.tls) {
			t.Errorf("%s: the certificate is not verified", c.options.URL)
		}
		for _, f := range got.Fallbacks {
			if c.tls != "-" && (f.TLSConfig == nil || f.TLSConfig.InsecureSkipVerify) {
				t.Errorf("%s: the certificate of %s is not verified", c.options.URL, f.Host)
			}
		}
		if d := cmp.Diff(c.params, got.RuntimeParams); d != "" || got.DefaultQueryExecMode != c.mode {
			t.Errorf("%s: mode %v, parameters %s", c.options.URL, got.DefaultQueryExecMode, d)
		}
	}
}

func TestConnectionsHaveTheSettings(t *testing.T) {
	t.Parallel()
	o, db := migrated(t)
	want(t, db, `SELECT current_setting(n)
		FROM unnest(ARRAY['search_path', 'statement_timeout', 'lock_timeout', 'jit', 'application_name']) n`,
		`"`+o.Schema+`" 10s 10s off turnpike`)
	if s := o.SetLocal(); s != "" {
		t.Errorf("SetLocal without a pooler: %q", s)
	}
	o.Pooler = postgres.PoolerTransaction
	tx, err := open(t, o).BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // it has changed nothing
	if _, err := tx.ExecContext(t.Context(), o.SetLocal()); err != nil {
		t.Error(err)
	}
	var timeout string
	if err := tx.QueryRowContext(t.Context(), `SHOW statement_timeout`).Scan(&timeout); err != nil || timeout != "10s" {
		t.Errorf("statement_timeout %q, error %v", timeout, err)
	}
}

// The role of the tests has no search_path, as behind a pooler that nobody has prepared.
func TestAPoolerThatLeadsToAnotherSchemaIsNoticed(t *testing.T) {
	t.Parallel()
	o, _ := migrated(t)
	o.Pooler = postgres.PoolerTransaction
	for _, listen := range []string{"", o.URL} {
		o.ListenURL = listen
		_, err := postgres.Migrate(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), "so do ALTER ROLE") {
			t.Errorf("listen URL %q: error %v", listen, err)
		}
	}
}

func TestPoolsHaveASize(t *testing.T) {
	if n := (postgres.Options{}).PoolSize(); n != 16 {
		t.Errorf("size %d, want 16", n)
	}
	if n := (postgres.Options{Pool: 3}).PoolSize(); n != 3 {
		t.Errorf("size %d, want 3", n)
	}
}
