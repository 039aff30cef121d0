package config

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// Postgres is how the database of the installation is used. It has no meaning without [Config].Database.
type Postgres struct {
	Schema           string // "" = the first of the role's search_path
	Pool             int    // connections of one replica
	Pooler           string // PoolerNone, PoolerTransaction or PoolerPrepared
	ListenURL        secret.Text
	StatementTimeout time.Duration
	LockTimeout      time.Duration
	Migrate          string // MigrateAtStart or MigrateNever
}

// What is between the gateway and PostgreSQL.
const (
	PoolerNone        = "none"
	PoolerTransaction = "transaction" // without prepared statements
	PoolerPrepared    = "prepared"    // the same, with prepared statements
)

// When the schema is brought up to date.
const (
	MigrateAtStart = "start"
	MigrateNever   = "never"
)

// Replica is what one of several gateways on one database says of itself.
type Replica struct {
	ID     string        // "" = the name of the host
	Linger time.Duration // how long requests are still taken while the replica stops
	Drain  time.Duration // how long runs may go on while the replica stops
}

// UsesPostgres reports whether the store is PostgreSQL. Otherwise it is SQLite in Data.
func (c *Config) UsesPostgres() bool { return !c.Database.IsZero() }

// Storage is where the files of orgs can be kept.
type Storage struct {
	Database bool // in the database
	Replicas bool // not on the disk of one of them
}

// Storage returns where the files of orgs can be kept.
func (c *Config) Storage() Storage { return Storage{c.UsesPostgres(), c.Replica != nil} }

func (p *Postgres) keys() []key {
	const env = "TURNPIKE_POSTGRES_"
	return []key{
		{name: "schema", value: text(&p.Schema, "", "schema", orEmpty(checkSchema)).or("the first schema of the role's search_path"),
			env: env + "SCHEMA",
			doc: "Schema of the installation. Two installations in one database have two schemas. At most 54 characters."},
		{name: "pool", value: integer(&p.Pool, 16, 4, 1000), env: env + "POOL",
			doc: "Maximum connections of one replica to the database. Two more are used for renewals and notifications."},
		{name: "pooler", value: word(&p.Pooler, PoolerNone, PoolerNone, PoolerTransaction, PoolerPrepared), env: env + "POOLER",
			doc: "What database leads to. none: the server. transaction: a pooler that gives each transaction another connection, such as " +
				"PgBouncer; nothing is prepared on connections. prepared: such a pooler that keeps prepared statements, such as PgBouncer from 1.21 " +
				"on with max_prepared_statements."},
		{name: "listen_url", value: databaseKey(&p.ListenURL), env: env + "LISTEN_URL",
			doc: "Only with a pooler: URL of the same database without it, for migrations and notifications. Without it a reader looks for news " +
				"every 2 seconds."},
		{name: "statement_timeout", value: duration(&p.StatementTimeout, 10*time.Second, 100*time.Millisecond, time.Hour),
			env: env + "STATEMENT_TIMEOUT",
			doc: "Maximum time of a statement. The database ends it then."},
		{name: "lock_timeout", value: duration(&p.LockTimeout, 3*time.Second, 10*time.Millisecond, time.Hour), env: env + "LOCK_TIMEOUT",
			doc: "Maximum time that a statement waits for a lock."},
		{name: "migrate", value: word(&p.Migrate, MigrateAtStart, MigrateAtStart, MigrateNever), env: env + "MIGRATE",
			doc: "start: the first replica of a new version brings the schema up to date. never: a replica does not start with an older schema; " +
				"the role needs no right to change it."},
	}
}

func (r *Replica) keys() []key {
	const env = "TURNPIKE_REPLICA_"
	return []key{
		{name: "id", value: text(&r.ID, "", "name", orEmpty(checkID)).or("the name of the host"), env: env + "ID",
			doc: "Name of the replica in the log and in turnpike doctor. Each start adds a random part, so two replicas with one name do no harm."},
		{name: "linger", value: duration(&r.Linger, 3*time.Second, 0, 10*time.Minute), env: env + "LINGER",
			doc: "How long requests are still taken after SIGTERM, while /readyz answers 503: until the load balancer has noticed. Then idle " +
				"connections are closed, and drain begins."},
		{name: "drain", value: duration(&r.Drain, 20*time.Second, 0, 10*time.Minute), env: env + "DRAIN",
			doc: "How long runs in progress may go on after SIGTERM and linger. Then another replica continues those that are durable."},
	}
}

// databaseKey is a key with the URL of a PostgreSQL database, or a reference to one.
func databaseKey(into *secret.Text) credential {
	c := credentialKey(into)
	c.parse = func(r raw) (secret.Text, error) {
		t, err := parseCredential(r)
		if err == nil && t.IsLiteral() {
			err = CheckPostgresURL(t.Literal())
		}
		return t, err
	}
	return c
}

// CheckPostgresURL checks the form of a URL such as postgres://turnpike:password@db.example.com:5432/turnpike, which may
// name several hosts. The error does not quote it.
func CheckPostgresURL(v secret.Value) error {
	s := v.Reveal()
	rest, ok := strings.CutPrefix(s, "postgres://")
	if !ok {
		rest, ok = strings.CutPrefix(s, "postgresql://")
	}
	if !ok {
		return errors.New("is not a URL of PostgreSQL; want one such as " + postgresExample)
	}
	before, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(before, "/")
	user, hosts, named := strings.Cut(authority, "@")
	if !named {
		user, hosts = "", authority
	}
	switch {
	case strings.Contains(rest, "#"):
		return errors.New("contains #; write it as %23")
	case strings.Contains(path, "@"):
		return errors.New("contains / before its @; write it as %2F")
	case strings.Count(authority, "@") > 1:
		return errors.New("contains @ twice before its host; write the one of the password as %40")
	}
	if _, err := url.PathUnescape(before); err != nil {
		return errors.New("contains % that does not begin a code such as %40; write it as %25")
	}
	values, err := url.ParseQuery(query)
	switch {
	case err != nil:
		return errors.New("has parameters after ? that cannot be read; want NAME=VALUE with & between them")
	case hosts == "" && values.Get("host") == "":
		return errors.New("names no host; want one such as " + postgresExample)
	case strings.TrimPrefix(user, ":") == "" && values.Get("user") == "":
		return errors.New("names no user; want one such as " + postgresExample)
	case path == "" && values.Get("dbname") == "" && values.Get("database") == "":
		return errors.New("names no database; want one such as " + postgresExample)
	}
	return nil
}

const postgresExample = "postgres://turnpike@db.example.com:5432/turnpike"

// PublicPostgresURL returns a URL that [CheckPostgresURL] accepts without its passwords, for people.
func PublicPostgresURL(v secret.Value) string {
	before, query, parameters := strings.Cut(v.Reveal(), "?")
	if at := strings.LastIndexByte(before, '@'); at >= 0 {
		begin := strings.Index(before, "://") + len("://")
		user, _, _ := strings.Cut(before[begin:at], ":")
		before = before[:begin] + user + before[at:]
	}
	var kept []string
	for part := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(part, "=")
		if name, err := url.QueryUnescape(name); err == nil && part != "" && name != "password" && name != "sslpassword" {
			kept = append(kept, part)
		}
	}
	if !parameters || len(kept) == 0 {
		return before
	}
	return before + "?" + strings.Join(kept, "&")
}

// maxSchema leaves room for the prefix of the channel of notifications, whose name has at most 63 bytes.
const maxSchema = 54

func checkSchema(s string) error {
	switch {
	case !regexp.MustCompile(`^[a-z_][a-z0-9_]*$`).MatchString(s):
		return fmt.Errorf("%s is not the name of a schema; want lower case letters, digits and _", quote(s))
	case len(s) > maxSchema:
		return fmt.Errorf("has %d characters; want at most %d", len(s), maxSchema)
	case strings.HasPrefix(s, "pg_") || s == "information_schema":
		return fmt.Errorf("%s is a schema of the database system; want one of your own", quote(s))
	}
	return nil
}

// placeReplica gives the configuration its replica if the file or a variable says something of one.
func (d *decoder) placeReplica(c *Config) {
	for _, path := range []string{"replica", "replica.id", "replica.drain"} {
		if at, given := d.where[path]; given {
			d.where["replica"] = at
			c.Replica = &c.replica
			return
		}
	}
}

// checkPostgres compares the keys about the database with each other.
func (d *decoder) checkPostgres(c *Config) {
	p := &c.Postgres
	if !c.UsesPostgres() {
		if !d.refused("database") {
			d.needsDatabase(c)
		}
		return
	}
	if c.MasterKey.IsZero() && !d.refused("master_key") {
		d.fail(nearestOrigin(d.where, "database"), "master_key", "is missing; a gateway with a database needs one, "+
			"the same for all replicas: set it, or TURNPIKE_MASTER_KEY, to 32 random bytes (openssl rand -base64 32)")
	}
	if p.Pooler != PoolerNone && p.Migrate == MigrateAtStart && p.ListenURL.IsZero() && !d.refused("postgres.listen_url") {
		d.failPath("postgres.pooler", "%s needs postgres.listen_url, because migrations need a connection of their own; "+
			"set it to the URL of the server, or postgres.migrate to never", p.Pooler)
	}
	if p.Pooler == PoolerNone && !p.ListenURL.IsZero() && !d.refused("postgres.pooler") {
		d.failPath("postgres.listen_url", "is a way around a pooler, and postgres.pooler says that there is none; set the pooler, or remove "+
			"listen_url")
	}
	if p.LockTimeout > p.StatementTimeout {
		d.failPath("postgres.lock_timeout", "%s is above postgres.statement_timeout (%s), so it would have no effect; lower it",
			showDuration(p.LockTimeout), showDuration(p.StatementTimeout))
	}
}

// refused reports whether the value of a key is a mistake already.
func (d *decoder) refused(path string) bool {
	for _, m := range d.mistakes {
		if m.Path == path {
			return true
		}
	}
	return false
}

// needsDatabase reports what is for PostgreSQL only.
func (d *decoder) needsDatabase(c *Config) {
	if c.Replica != nil {
		d.failPath("replica", "needs database: several replicas share a PostgreSQL database; set it to postgres://…, or remove replica")
	}
	for _, k := range c.Postgres.keys() {
		if path := join("postgres", k.name); d.given(path) {
			d.failPath(path, "needs database; set it to postgres://…, or remove the key")
		}
	}
}

func (d *decoder) given(path string) bool {
	_, ok := d.where[path]
	return ok
}

// placeBucket gives a bucket that names no kind its kind, and reports a kind that cannot be used.
func (d *decoder) placeBucket(path string, b *org.Bucket) {
	at := join(path, "kind")
	switch {
	case !d.given(at) && d.storage.Replicas:
		b.Kind = org.BucketDatabase
	case b.Kind == org.BucketDatabase && !d.storage.Database:
		d.failPath(at, "database needs PostgreSQL; set database to postgres://…, or the kind to disk or s3")
	case b.Kind != org.BucketDatabase && !b.IsS3() && d.storage.Replicas:
		d.failPath(at, "disk is in the data directory of one replica, and the others could not read it; set it to database or s3")
	}
}

// DatabaseURL looks up the URL of the database, and nothing else; empty for SQLite. What is wrong is an *[Error].
func (c *Config) DatabaseURL(ctx context.Context, r *secret.Resolver) (secret.Value, error) {
	l := lookup{config: c, resolver: r}
	url := l.postgresURL(ctx, "database", c.Database)
	return url, newError(l.mistakes)
}

// MasterKeys looks up the master key and the one before, and nothing else; empty where there is none. What is wrong is an
// *[Error].
func (c *Config) MasterKeys(ctx context.Context, r *secret.Resolver) (key, previous secret.Value, err error) {
	l := lookup{config: c, resolver: r}
	_, key, previous = l.keyring(ctx)
	return key, previous, newError(l.mistakes)
}

// ListenURL is DatabaseURL for the URL without a pooler; empty where none is configured.
func (c *Config) ListenURL(ctx context.Context, r *secret.Resolver) (secret.Value, error) {
	l := lookup{config: c, resolver: r}
	url := l.postgresURL(ctx, "postgres.listen_url", c.Postgres.ListenURL)
	return url, newError(l.mistakes)
}

// postgresURL is the URL of a PostgreSQL database; empty for none.
func (l *lookup) postgresURL(ctx context.Context, path string, t secret.Text) secret.Value {
	v := l.value(ctx, path, t)
	if v.IsZero() {
		return v
	}
	if err := CheckPostgresURL(v); err != nil {
		l.fail(path, err.Error())
		return secret.Value{}
	}
	return v
}
