package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

func noPostgres() Postgres {
	return Postgres{Pool: 16, Pooler: PoolerNone, StatementTimeout: 10 * time.Second, LockTimeout: 3 * time.Second, Migrate: MigrateAtStart}
}

// withDatabase begins a file that names a database.
const withDatabase = "database: env:DB\nmaster_key: env:MK\n"

func TestPostgresIsRead(t *testing.T) {
	c := parsed(t, withDatabase+"postgres: {schema: gate_2, pool: 4, pooler: prepared, listen_url: 'file:/run/url', statement_timeout: 1m, "+
		"lock_timeout: 10ms, migrate: never}\nreplica: {id: a-1, linger: 0s, drain: 0s}")
	want := Postgres{"gate_2", 4, PoolerPrepared, mustText(t, "file:/run/url"), time.Minute, 10 * time.Millisecond, MigrateNever}
	if diff := cmp.Diff(want, c.Postgres, same()); diff != "" {
		t.Error(diff)
	}
	if c.Replica == nil || *c.Replica != (Replica{ID: "a-1"}) || !c.UsesPostgres() {
		t.Errorf("%+v", c.Replica)
	}
}

// What is written of a replica, not what it says, means that there are several.
func TestAReplicaIsWritten(t *testing.T) {
	usual := &Replica{Linger: 3 * time.Second, Drain: 20 * time.Second}
	for name, c := range map[string]struct {
		file string
		env  map[string]string
		want *Replica
	}{
		"none":          {withDatabase, nil, nil},
		"empty":         {withDatabase + "replica: {}", nil, usual},
		"by a variable": {withDatabase, map[string]string{"TURNPIKE_REPLICA_DRAIN": "20s"}, usual},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse("t.yaml", []byte(c.file), variablesOf(c.env))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got.Replica); diff != "" {
				t.Error(diff)
			}
		})
	}
	want := []Change{{"replica", absent, present, false}}
	if diff := cmp.Diff(want, Changes(parsed(t, withDatabase), parsed(t, withDatabase+"replica: {}"))); diff != "" {
		t.Error(diff)
	}
}

func TestWhatThePostgresKeysNeed(t *testing.T) {
	const noKey = "master_key: is missing; a gateway with a database needs one, the same for all replicas: set it, or TURNPIKE_MASTER_KEY, " +
		"to 32 random bytes (openssl rand -base64 32)"
	bucket := "orgs: [{id: a, runtime: {buckets: [{name: b, kind: disk}]}}]"
	for name, c := range map[string]struct{ file, want string }{
		"a database without a master key": {"database: env:DB", "t.yaml:1:11: " + noKey},
		"a replica without a database": {"replica: {}", "t.yaml:1:10: replica: needs database: several replicas share a PostgreSQL " +
			"database; set it to postgres://…, or remove replica"},
		"settings without a database": {"postgres: {pool: 8}", "t.yaml:1:18: postgres.pool: needs database; set it to postgres://…, or " +
			"remove the key"},
		"a schema in upper case": {withDatabase + "postgres: {schema: Gate}", "t.yaml:3:20: " +
			`postgres.schema: "Gate" is not the name of a schema; want lower case letters, digits and _`},
		"a schema of the system": {withDatabase + "postgres: {schema: pg_x}", "t.yaml:3:20: " +
			`postgres.schema: "pg_x" is a schema of the database system; want one of your own`},
		"a long schema": {withDatabase + "postgres: {schema: " + strings.Repeat("x", 55) + "}", "t.yaml:3:20: " +
			"postgres.schema: has 55 characters; want at most 54"},
		"too few connections": {withDatabase + "postgres: {pool: 3}", "t.yaml:3:18: postgres.pool: 3 is out of range (4..1000)"},
		"a pooler without a way around it": {withDatabase + "postgres: {pooler: transaction}", "t.yaml:3:20: postgres.pooler: transaction " +
			"needs postgres.listen_url, because migrations need a connection of their own; set it to the URL of the server, or postgres.migrate " +
			"to never"},
		"a pooler without migrations":   {withDatabase + "postgres: {pooler: transaction, migrate: never}", ""},
		"a pooler with a way around it": {withDatabase + "postgres: {pooler: prepared, listen_url: env:L}", ""},
		"a way around no pooler": {withDatabase + "postgres: {listen_url: env:L}", "t.yaml:3:24: postgres.listen_url: is a way around a " +
			"pooler, and postgres.pooler says that there is none; set the pooler, or remove listen_url"},
		"a lock that is never waited for": {withDatabase + "postgres: {lock_timeout: 11s}", "t.yaml:3:26: postgres.lock_timeout: 11s is " +
			"above postgres.statement_timeout (10s), so it would have no effect; lower it"},
		"a bucket on the disk of a replica": {withDatabase + "replica: {}\n" + bucket, "t.yaml:4:52: orgs[0].runtime.buckets[0].kind: disk is " +
			"in the data directory of one replica, and the others could not read it; set it to database or s3"},
		"a bucket on the disk": {withDatabase + bucket, ""},
		"a bucket in no database": {strings.Replace(bucket, "disk", "database", 1), "t.yaml:1:52: orgs[0].runtime.buckets[0].kind: " +
			"database needs PostgreSQL; set database to postgres://…, or the kind to disk or s3"},
		"a bucket in the database": {withDatabase + strings.Replace(bucket, "disk", "database", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if _, err := Parse("t.yaml", []byte(c.file), nothing); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Also over the management API, which has the words of the file.
func TestTheKindOfABucketThatNamesNone(t *testing.T) {
	for name, c := range map[string]struct {
		storage Storage
		want    string
	}{
		"with SQLite": {Storage{}, org.BucketDisk}, "with one gateway": {Storage{Database: true}, org.BucketDisk}, "with " +
			"replicas": {Storage{true, true}, org.BucketDatabase},
	} {
		r, err := Part{Name: "body", Data: []byte("buckets: [{name: b}]"), Storage: c.storage}.Runtime(50)
		if err != nil || r.Buckets[0].Kind != c.want {
			t.Errorf("%s: %+v, %v", name, r.Buckets, err)
		}
	}
	if c := parsed(t, withDatabase+"replica: {}\norgs: [{id: a, runtime: {buckets: [{name: "+
		"b}]}}]"); c.Orgs[0].Runtime.Buckets[0].Kind != org.BucketDatabase {
		t.Errorf("%+v", c.Orgs[0].Runtime.Buckets)
	}
	if _, err := (Part{Name: "body", Data: []byte("buckets: [{name: b, kind: disk}]"), Storage: Storage{true,
		true}}).Runtime(50); err == nil || !strings.Contains(err.Error(), "set it to database or s3") {
		t.Errorf("%v", err)
	}
}

// No message about the URL of a database quotes it. // K06
func TestTheURLOfADatabaseIsCheckedAndNotQuoted(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://u:CANARY@h:5432/d?sslmode=verify-full":     "",
		"postgresql://u:CANARY@a:5432,b:5432/d":                "",
		"postgres://u@/d?host=/run/postgresql&password=CANARY": "",
		"postgres://u@[::1]:5432/d":                            "",
		"postgres://u:CANARY%40%2F%23@h/d":                     "",
		"mysql://u:CANARY@h/d": "is not a URL of PostgreSQL; want one such as " +
			"postgres://turnpike@db.example.com:5432/turnpike",
		"host=h,password=CANARY": "is not a URL of PostgreSQL; want one such as " +
			"postgres://turnpike@db.example.com:5432/turnpike",
		"postgres://u:CANARY#1@h/d":      "contains #; write it as %23",
		"postgres://u:CANARY/1@h/d":      "contains / before its @; write it as %2F",
		"postgres://u:CANARY@1@h/d":      "contains @ twice before its host; write the one of the password as %40",
		"postgres://u:CANARY%@h/d":       "contains % that does not begin a code such as %40; write it as %25",
		"postgres://h/d?password=CANARY": "names no user; want one such as postgres://turnpike@db.example.com:5432/turnpike",
		"postgres://u:CANARY@h":          "names no database; want one such as postgres://turnpike@db.example.com:5432/turnpike",
		"postgres://u:CANARY@/d": "names no host; want one such as " +
			"postgres://turnpike@db.example.com:5432/turnpike",
		"postgres://u@h/d?password=CANARY;sslmode=disable&x=%zz": "has parameters after ? that cannot be read; want NAME=VALUE with & between " +
			"them",
	} {
		got := ""
		if err := CheckPostgresURL(secret.NewValue(url)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
		file := "database: '" + url + "'\nmaster_key: env:MK\npostgres: {pooler: transaction, listen_url: '" + url + "'}"
		c, err := Parse("t.yaml", []byte(file), nothing)
		var said string
		if err != nil {
			said = err.Error()
		} else {
			said = c.Shown()["database"] + c.Shown()["postgres.listen_url"] + strings.Join(c.Warnings, "")
		}
		if (err == nil) != (want == "") || strings.Contains(said, "CANARY") {
			t.Errorf("%s: %s", url, said)
		}
		referred, err := Parse("t.yaml", []byte(withDatabase+"postgres: {pooler: transaction, listen_url: env:DB}"), nothing)
		if err != nil {
			t.Fatal(err)
		}
		resolver := secret.NewResolver(variablesOf(map[string]string{"DB": url, "MK": masterKey}))
		_, err = referred.Resolve(t.Context(), resolver)
		if (err == nil) != (want == "") || err != nil && (strings.Contains(err.Error(), "CANARY") || strings.Count(err.Error(), want) != 2) {
			t.Errorf("%s: %v", url, err)
		}
		if v, err := referred.DatabaseURL(t.Context(), resolver); err == nil && v.Reveal() != url {
			t.Errorf("%s: %q", url, v.Reveal())
		}
	}
}

func TestAURLWithoutItsPassword(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://u:CANARY@h:5432/d?sslmode=verify-full": "postgres://u@h:5432/d?sslmode=verify-full",
		"postgres://u:@h/d": "postgres://u@h/d",
		"postgres://h/d":    "postgres://h/d",
		"postgres://u@h/d":  "postgres://u@h/d",
		"postgres:///d?host=/run&pass%77ord=CANARY&sslpassword=x": "postgres:///d?host=/run",
		"postgres://u@h/d?password=CANARY":                        "postgres://u@h/d",
	} {
		if got := PublicPostgresURL(secret.NewValue(url)); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}
