package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// The results of a Line.
const (
	Well     = "well"
	Wrong    = "wrong"
	NotTried = "not tried"
)

// Line is what one check of a database has found.
type Line struct {
	Name   string // of the check, such as clock
	Status string // Well, Wrong or NotTried
	Detail string // what was found; never a password
	Remedy string // what to do; "" unless it is Wrong
}

// Examination says what the database is expected to be.
type Examination struct {
	Schema   string           // of the installation; "" = the first of the role's search_path
	Pool     int              // connections of one replica
	Migrates bool             // the role may change the schema
	Pooled   bool             // a pooler is between this program and the server
	Known    int64            // version of the schema that this program knows; 0 = it is not compared
	Version  string           // of this program
	Now      func() time.Time // nil = time.Now
}

// What is wrong beyond these.
const (
	oldestServer    = 14
	clockTolerance  = 5 * time.Second
	slowRoundTrip   = 5 * time.Millisecond
	oldSnapshot     = 5 * time.Minute
	livingFor       = 15 * time.Second // after a beat
	manyDeadRows    = 100_000
	largeFiles      = 100 << 30 // bytes
	pulseAndBell    = 2         // connections of a replica beside its pool
	roundTrips      = 5
	livingCondition = `seen_at > ` + nowMillis + ` - 15000`
)

// Examine checks a database, and changes nothing. It uses one connection.
func Examine(ctx context.Context, db *sql.DB, e Examination) []Line {
	if e.Now == nil {
		e.Now = time.Now
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return []Line{{"connection", Wrong, "cannot be reached: " + plainError(err), "check database, the network, and that the server " +
			"accepts the role"}}
	}
	defer conn.Close()
	x := &examiner{Examination: e, ctx: ctx, conn: conn}
	for _, check := range []struct {
		name string
		do   func() (Line, error)
	}{
		{"version", x.version}, {"encoding", x.encoding}, {"durability", x.durability}, {"TLS", x.encryption}, {"schema", x.schema},
		{"rights", x.rights}, {"connections", x.connections}, {"clock", x.clock}, {"round trip", x.roundTrip}, {"snapshots", x.snapshots},
		{"dead rows", x.deadRows}, {"files", x.files}, {"replicas", x.replicas},
	} {
		line, err := check.do()
		if err != nil {
			line = Line{Status: Wrong, Detail: "cannot be checked: " + plainError(err), Remedy: "do what the message says, and try again"}
		}
		line.Name = check.name
		x.found = append(x.found, line)
	}
	return x.found
}

// plainError is an error in one line.
func plainError(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// examiner is one use of Examine.
type examiner struct {
	Examination
	ctx     context.Context // of the call
	conn    *sql.Conn
	current string // schema; "" = there is none
	found   []Line
}

func well(format string, args ...any) (Line, error) {
	return Line{Status: Well, Detail: fmt.Sprintf(format, args...)}, nil
}

func wrong(remedy, format string, args ...any) (Line, error) {
	return Line{Status: Wrong, Detail: fmt.Sprintf(format, args...), Remedy: remedy}, nil
}

func untried(format string, args ...any) (Line, error) {
	return Line{Status: NotTried, Detail: fmt.Sprintf(format, args...)}, nil
}

func (x *examiner) one(query string, into ...any) error {
	return x.conn.QueryRowContext(x.ctx, query).Scan(into...)
}

// texts returns the rows of a query with one column.
func (x *examiner) texts(query string, args ...any) (all []string, err error) {
	rows, err := x.conn.QueryContext(x.ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
}

func (x *examiner) version() (Line, error) {
	var number int
	var text string
	if err := x.one(`SELECT current_setting('server_version_num')::int, current_setting('server_version')`, &number, &text); err != nil {
		return Line{}, err
	}
	if number/10_000 < oldestServer {
		return wrong(fmt.Sprintf("use PostgreSQL %d or later", oldestServer), "the server is PostgreSQL %s", text)
	}
	return well("PostgreSQL %s", text)
}

func (x *examiner) encoding() (Line, error) {
	var encoding string
	if err := x.one(`SELECT current_setting('server_encoding')`, &encoding); err != nil {
		return Line{}, err
	}
	if encoding != "UTF8" {
		return wrong("create a database with ENCODING 'UTF8', and move the data to it", "the encoding of the database is %s", encoding)
	}
	return well("UTF8")
}

func (x *examiner) durability() (Line, error) {
	off, err := x.texts(`SELECT name FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off'
		ORDER BY name`)
	if err != nil {
		return Line{}, err
	}
	if len(off) > 0 {
		return wrong("set them to on, for the server or (synchronous_commit) with ALTER ROLE … SET; check the data if the server has crashed "+
			"before",
			"off: %s; what was answered can be lost when the server crashes", strings.Join(off, ", "))
	}
	return well("fsync, full_page_writes and synchronous_commit are not off")
}

func (x *examiner) encryption() (Line, error) {
	var encrypted bool
	var version, address sql.NullString
	if err := x.one(`SELECT coalesce(bool_or(ssl), false), max(version), host(inet_server_addr()) FROM pg_stat_ssl
		WHERE pid = pg_backend_pid()`, &encrypted, &version, &address); err != nil {
		return Line{}, err
	}
	ip, err := netip.ParseAddr(address.String)
	switch {
	case x.Pooled:
		return untried("the server sees the connection of the pooler, not that of the gateway")
	case encrypted:
		return well("%s", version.String)
	case !address.Valid:
		return well("a socket of this machine, without TLS")
	case err == nil && ip.IsLoopback():
		return well("an address of this machine, without TLS")
	}
	return wrong("remove sslmode from database, so that the certificate is verified, and let the server speak TLS", "the connection to %s "+
		"is not encrypted", address.String)
}

func (x *examiner) schema() (Line, error) {
	var current sql.NullString
	if err := x.one(`SELECT current_schema()`, &current); err != nil {
		return Line{}, err
	}
	x.current = current.String
	switch {
	case !current.Valid && x.Schema != "":
		return untried("there is no schema %s yet; the gateway creates it at its start", x.Schema)
	case !current.Valid:
		return wrong("set postgres.schema, or ALTER ROLE … SET search_path to a schema that exists", "the search_path of the role names no "+
			"schema that exists")
	case x.Schema != "" && x.Schema != x.current:
		return wrong("set the search_path of the role to this schema: ALTER ROLE … SET search_path", "the connection is in the schema %s, and "+
			"postgres.schema is %s", x.current, x.Schema)
	}
	if there, err := x.has("goose_db_version"); err != nil || !there {
		if err != nil {
			return Line{}, err
		}
		return untried("the schema %s has no tables yet; the gateway creates them at its start", x.current)
	}
	var version int64
	if err := x.one(`SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`, &version); err != nil {
		return Line{}, err
	}
	switch {
	case x.Known > 0 && version < x.Known && x.Migrates:
		return well("%s has version %d; the next start brings it to %d", x.current, version, x.Known)
	case x.Known > 0 && version < x.Known:
		return wrong("start one replica of this version with postgres.migrate: start, and a role that may change the schema",
			"%s has version %d, and this program needs %d", x.current, version, x.Known)
	}
	return well("%s has version %d", x.current, version)
}

// has reports whether the schema has a table.
func (x *examiner) has(table string) (there bool, err error) {
	err = x.conn.QueryRowContext(x.ctx, `SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = current_schema() AND c.relname = $1 AND c.relkind IN ('r', 'p'))`, table).Scan(&there)
	return there, err
}

func (x *examiner) rights() (Line, error) {
	var role string
	var super, makesRoles, mayCreate bool
	if err := x.one(`SELECT rolname, rolsuper, rolcreaterole, has_schema_privilege(current_schema(), 'CREATE') IS TRUE FROM pg_roles WHERE
		rolname = current_user`,
		&role, &super, &makesRoles, &mayCreate); err != nil {
		return Line{}, err
	}
	if super || makesRoles {
		return wrong("use a role of its own: CREATE ROLE turnpike LOGIN NOSUPERUSER NOCREATEROLE, with rights in the schema only",
			"the role %s may do more than the gateway needs: it is a superuser, or makes roles", role)
	}
	if x.current == "" {
		return untried("there is no schema yet")
	}
	missing, err := x.texts(`SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = current_schema() AND CASE c.relkind WHEN 'r' THEN NOT (has_table_privilege(c.oid,
			'SELECT') AND has_table_privilege(c.oid, 'INSERT')
			AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))
			WHEN 'S' THEN NOT has_sequence_privilege(c.oid, 'USAGE') ELSE false END ORDER BY 1`)
	switch {
	case err != nil:
		return Line{}, err
	case len(missing) > 0:
		return wrong("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES and USAGE ON ALL SEQUENCES IN SCHEMA "+x.current+" TO "+role,
			"the role %s may not use %s", role, someOf(missing))
	case x.Migrates && !mayCreate:
		return wrong("GRANT CREATE ON SCHEMA "+x.current+" TO "+role+", or set postgres.migrate to never and migrate with another role",
			"the role %s may not change the schema, and postgres.migrate is start", role)
	}
	return well("the role %s may use the schema, and is no superuser", role)
}

// someOf lists the first names.
func someOf(names []string) string {
	const most = 5
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

func (x *examiner) connections() (Line, error) {
	replicas := 1
	there, err := x.has("replicas")
	if err == nil && there {
		err = x.one(`SELECT greatest(count(*), 1) FROM replicas WHERE `+livingCondition, &replicas)
	}
	if err != nil {
		return Line{}, err
	}
	var most, role, database int
	if err := x.one(`SELECT (SELECT coalesce(sum(CASE name WHEN 'max_connections' THEN setting::int ELSE -setting::int END), 0) FROM
		pg_settings
			WHERE name IN ('max_connections', 'superuser_reserved_connections', 'reserved_connections')),
		(SELECT rolconnlimit FROM pg_roles WHERE rolname = current_user),
			(SELECT datconnlimit FROM pg_database WHERE datname = current_database())`,
		&most, &role, &database); err != nil {
		return Line{}, err
	}
	limit := "max_connections of the server"
	if role >= 0 && role < most {
		most, limit = role, "the connection limit of the role"
	}
	if database >= 0 && database < most {
		most, limit = database, "the connection limit of the database"
	}
	need := replicas * (x.Pool + pulseAndBell)
	if need > most && !x.Pooled {
		return wrong("raise "+limit+", lower postgres.pool, or use a pooler", "%d replicas need %d connections, and %s leaves %d", replicas,
			need, limit, most)
	}
	return well("%d replicas need %d connections; %s leaves %d", replicas, need, limit, most)
}

func (x *examiner) clock() (Line, error) {
	before := x.Now()
	var ms int64
	if err := x.one(`SELECT `+nowMillis, &ms); err != nil {
		return Line{}, err
	}
	after := x.Now()
	differs := time.UnixMilli(ms).Sub(before.Add(after.Sub(before) / 2)).Round(time.Millisecond)
	if differs.Abs() > clockTolerance {
		return wrong("synchronize the clocks of both machines (NTP)", "the clock of the server differs by %s from that of this machine", differs)
	}
	return well("differs by %s from that of this machine", differs)
}

func (x *examiner) roundTrip() (Line, error) {
	var took []time.Duration
	for range roundTrips {
		begin := x.Now()
		var n int
		if err := x.one(`SELECT 1`, &n); err != nil {
			return Line{}, err
		}
		took = append(took, x.Now().Sub(begin))
	}
	slices.Sort(took)
	median := took[len(took)/2].Round(10 * time.Microsecond)
	if median > slowRoundTrip {
		return wrong("run the gateway close to the database: each step of a run waits for it", "a statement takes %s on the way", median)
	}
	return well("%s", median)
}

func (x *examiner) snapshots() (Line, error) {
	old, err := x.texts(`SELECT what || ', for ' || seconds || ' s' FROM (
		SELECT 'session ' || pid || ' (' || coalesce(nullif(application_name, ''), 'no name') || ')' AS what,
			extract(epoch FROM clock_timestamp() - xact_start)::bigint AS seconds
			FROM pg_stat_activity WHERE xact_start IS NOT NULL AND backend_type = 'client backend' AND pid <> pg_backend_pid()
		UNION ALL SELECT 'prepared transaction ' || gid, extract(epoch FROM clock_timestamp() - prepared)::bigint FROM pg_prepared_xacts
	) all_of_them WHERE seconds > $1 ORDER BY seconds DESC`, int64(oldSnapshot/time.Second))
	if err != nil {
		return Line{}, err
	}
	if len(old) > 0 {
		return wrong("end them: pg_terminate_backend, or ROLLBACK PREPARED; while they last, deleted rows cannot be removed, and statements "+
			"get slower",
			"transactions are open for more than %s: %s", oldSnapshot, someOf(old))
	}
	return well("no transaction that the role can see is older than %s", oldSnapshot)
}

func (x *examiner) deadRows() (Line, error) {
	dead, err := x.texts(`SELECT relname || ' (' || n_dead_tup || ' dead, ' || n_live_tup || ' living)' FROM pg_stat_user_tables
		WHERE schemaname = current_schema() AND n_dead_tup > $1 AND n_dead_tup > n_live_tup / 2 ORDER BY n_dead_tup DESC`, manyDeadRows)
	if err != nil {
		return Line{}, err
	}
	if len(dead) > 0 {
		return wrong("see that autovacuum is on and that no transaction stays open (snapshots); VACUUM these tables", "tables with many dead "+
			"rows: %s", someOf(dead))
	}
	return well("no table has many")
}

func (x *examiner) files() (Line, error) {
	there, err := x.has("file_chunks")
	if err != nil || !there {
		if err != nil {
			return Line{}, err
		}
		return untried("there is no table of files yet")
	}
	var size int64
	if err := x.one(`SELECT pg_total_relation_size(quote_ident(current_schema()) || '.file_chunks')`, &size); err != nil {
		return Line{}, err
	}
	if size > largeFiles {
		return wrong("use buckets of the kind s3 for large files", "the contents of files need %d GiB of the database", size>>30)
	}
	return well("the contents of files need %d MiB of the database", size>>20)
}

func (x *examiner) replicas() (Line, error) {
	there, err := x.has("replicas")
	if err != nil || !there {
		if err != nil {
			return Line{}, err
		}
		return untried("there is no table of replicas yet")
	}
	rows, err := x.conn.QueryContext(x.ctx, `SELECT id, version, draining, `+nowMillis+` - seen_at, `+livingCondition+`,
		(SELECT count(*) FROM runs WHERE status = 'running' AND owner = r.id) FROM replicas r ORDER BY id`)
	if err != nil {
		return Line{}, err
	}
	defer rows.Close()
	var all, gone, dead, others []string
	for rows.Next() {
		var id, version string
		var draining, ago, has int64
		var living bool
		if err := rows.Scan(&id, &version, &draining, &ago, &living, &has); err != nil {
			return Line{}, err
		}
		what := fmt.Sprintf("%s (%s, beat %s ago", id, version, time.Duration(ago)*time.Millisecond)
		if draining != 0 {
			what += ", draining"
		}
		what += ")"
		switch {
		case !living && has > 0:
			dead = append(dead, fmt.Sprintf("%s has %d runs", what, has))
		case !living:
			gone = append(gone, what)
			continue
		case x.Version != "" && version != x.Version:
			others = append(others, what)
		}
		all = append(all, what)
	}
	switch {
	case rows.Err() != nil:
		return Line{}, rows.Err()
	case len(dead) > 0:
		return wrong("start a replica, or see why these cannot reach the database; others take their runs over within seconds",
			"without a beat for more than %s: %s", livingFor, someOf(dead))
	case len(others) > 0:
		return wrong("finish the upgrade: restart these replicas with one version", "replicas of another version than this program (%s): %s",
			x.Version, someOf(others))
	case len(all)+len(gone) == 0:
		return untried("no gateway runs")
	case len(all) == 0:
		return untried("no gateway runs. Without a beat, and its runs were taken over: %s", someOf(gone))
	case len(gone) > 0:
		return well("%s. Without a beat, and its runs were taken over: %s", someOf(all), someOf(gone))
	}
	return well("%s", someOf(all))
}
