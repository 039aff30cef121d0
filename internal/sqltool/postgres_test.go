package sqltool_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/sqltool"
	"github.com/turnpike-gateway/turnpike/tool"
)

// E01
func TestPostgresReads(t *testing.T) {
	d := newServer(t).desk()
	a := d.query("SELECT id, customer, total, paid, details, at FROM orders ORDER BY id;\n")
	if !strings.Contains(a.text, `[1,"Ada",12.50,true,{"a": [1, 2]},"2026-01-02 `) || a.RowCount != 2 || len(a.Columns) != 6 {
		t.Error(a.text)
	}
	for query, want := range map[string]string{
		"with recursive n(i) as (select 1 union all select i+1 from n where i < 3), m(a, b) as not materialized (select i, i from n) select string_agg(a::text, ',') from m": `"1,2,3"`,
		"/* a /* b */ ; */ -- c ;\n (select 7)":                                      "7",
		"VALUES (3)":                                                                 "3",
		"TABLE averages":                                                             "100000",
		"SELECT average FROM public.averages":                                        "100000",
		"SELECT count(*) FILTER (WHERE paid) FROM orders":                            "1",
		"SELECT E'a\\'b;' || ';' || $q$pg_sleep(1);$q$":                              `"a'b;;pg_sleep(1);"`,
		`SELECT "customer" FROM "orders" o WHERE o.id IN (1)`:                        `"Ada"`,
		"SELECT x.n FROM generate_series(1, 1) AS x(n)":                              "1",
		"SELECT extract(year FROM at)::int FROM orders WHERE id = 1":                 "2026",
		"SELECT cast(total AS numeric(4,1)) FROM orders WHERE id = 1":                "12.5",
		"SELECT row_number() OVER (PARTITION BY paid) FROM orders LIMIT 1":           "1",
		"SELECT 'NaN'::float8":                                                       `"NaN"`,
		"SELECT NULL":                                                                "null",
		"SELECT '\\x00ff'::bytea":                                                    `"\\x00ff"`,
		"SELECT details #>> '{a,1}' FROM orders WHERE details @> '{\"a\":[1]}'":      `"2"`,
		"SELECT coalesce(nullif(1, 1), greatest(2, 3))":                              "3",
		"SELECT count(DISTINCT customer) FROM orders GROUP BY ROLLUP (paid) LIMIT 1": "1",
	} {
		if got := d.must(query); len(got) != 1 || got[0] != want && want != "1" {
			t.Errorf("%s: %v, want %s", query, got, want)
		}
	}
	if a := d.query("SELECT FROM orders"); a.Error != "" || a.RowCount != 2 {
		t.Errorf("%+v", a)
	}
	if a := d.query("SELECT 1 WHERE false"); a.Error != "" || a.RowCount != 0 || len(a.Columns) != 1 {
		t.Errorf("%+v", a)
	}
	if got := d.query("").text; !strings.Contains(got, `["public.orders","customer","text"]`) || strings.Contains(got, "salaries") {
		t.Errorf("the tables are %s", got)
	}
	d.refuses("SELECT missing FROM orders", `the database says: column "missing" does not exist (SQLSTATE 42703)`)
	if n := d.dialled.Load(); n != 1 {
		t.Errorf("%d connections for calls that follow each other", n)
	}
}

// K11; sandbox.md, section 2: every statement that works in a READ ONLY transaction of a superuser, and those that
// change, wait, connect or look at other sessions.
func TestPostgresAttacksFail(t *testing.T) {
	s := newServer(t)
	d := s.desk()
	out := filepath.Join(t.TempDir(), "made")
	s.run(`CREATE TABLE log (note text); GRANT ALL ON log TO PUBLIC;
		CREATE FUNCTION write_log() RETURNS int LANGUAGE plpgsql AS $$ BEGIN INSERT INTO log VALUES ('written'); RETURN 1; END $$;
		CREATE VIEW sneaky AS SELECT write_log() AS n; GRANT SELECT ON sneaky TO PUBLIC;
		CREATE SEQUENCE numbers; GRANT ALL ON numbers TO PUBLIC`)
	for query, want := range map[string]string{
		"COPY orders TO PROGRAM 'touch " + out + "'":                             "must begin with",
		"COPY orders TO '" + out + "'":                                           "must begin with",
		"SELECT 1; COPY orders TO PROGRAM 'touch " + out + "'":                   "one statement",
		"SELECT 1; DROP TABLE orders":                                            "one statement",
		"SELECT ';' ; DROP TABLE orders":                                         "one statement",
		"SELECT $$;$$ ; DROP TABLE orders":                                       "one statement",
		"SELECT E'\\'; ' ; DROP TABLE orders":                                    "one statement",
		"/* /* */ ; */ SELECT 1 ; DROP TABLE orders":                             "one statement",
		"SELECT pg_read_file('/etc/passwd')":                                     "the function pg_read_file is not one that queries may use",
		"SELECT PG_READ_FILE ('/etc/passwd')":                                    "pg_read_file",
		"SELECT pg_read_file/**/\n('/etc/passwd')":                               "pg_read_file",
		`SELECT "pg_read_file"('/etc/passwd')`:                                   "pg_read_file",
		`SELECT pg_catalog."pg_read_file"('/etc/passwd')`:                        `the schema "pg_catalog" is not one`,
		`SELECT U&"pg\005fread_file"('/etc/passwd')`:                             "U&",
		`SELECT u&"\0070g_sleep"(1)`:                                             "U&",
		"SELECT * FROM pg_ls_dir('/') AS x(n)":                                   "pg_ls_dir",
		"SELECT * FROM ROWS FROM (pg_ls_dir('/')) AS x(n)":                       "pg_ls_dir",
		"SELECT DISTINCT ON (1) pg_sleep(100)":                                   "SQLSTATE 42883",
		"SELECT 1 WHERE (1) = 1 AND pg_sleep(100) IS NULL":                       "pg_sleep",
		"SELECT E'a'\n'\\'' || pg_sleep(100) || '' --'":                          "two strings follow each other",
		"SELECT E'a' -- b\n'\\'' || pg_sleep(100) || '' --'":                     "two strings follow each other",
		"SELECT lo_import('/etc/passwd')":                                        "lo_import",
		"SELECT lo_export(1, '" + out + "')":                                     "lo_export",
		"SELECT lo_creat(-1)":                                                    "lo_creat",
		"SELECT * FROM dblink('host=/tmp', 'SELECT 1') AS x(n int)":              "dblink",
		"WITH x(q) AS (SELECT 1) SELECT * FROM x, dblink(q) AS (a int)":          "dblink",
		"SELECT query_to_xml('SELECT * FROM secret.salaries', true, true, '')":   "query_to_xml",
		"SELECT table_to_xml('secret.salaries', true, true, '')":                 "regclass",
		"SELECT * FROM ts_stat('SELECT to_tsvector(name) FROM secret.salaries')": "ts_stat",
		"SELECT set_config('statement_timeout', '0', false)":                     "set_config",
		"SELECT current_setting('data_directory')":                               "current_setting",
		"SELECT pg_advisory_lock(7)":                                             "pg_advisory_lock",
		"SELECT pg_terminate_backend(1)":                                         "pg_terminate_backend",
		"SELECT pg_cancel_backend(1)":                                            "pg_cancel_backend",
		"SELECT pg_notify('a', 'b')":                                             "pg_notify",
		"SELECT pg_logical_emit_message(false, 'a', 'b')":                        "pg_logical_emit_message",
		"SELECT pg_stat_get_activity(NULL)":                                      "pg_stat_get_activity",
		"SELECT * FROM pg_stat_activity":                                         "the table pg_catalog.pg_stat_activity is not one",
		"SELECT * FROM pg_class":                                                 "the table pg_catalog.pg_class is not one",
		"SELECT * FROM pg_catalog.pg_roles":                                      `the schema "pg_catalog" is not one`,
		"SELECT * FROM information_schema.tables":                                `the schema "information_schema" is not one`,
		"SELECT 'secret.salaries'::regclass":                                     "the type regclass is not supported",
		"SELECT regclass 'secret.salaries'":                                      "the type regclass is not supported",
		"SELECT nextval('numbers')":                                              "regclass",
		"SELECT write_log()":                                                     "write_log",
		"SELECT * FROM sneaky":                                                   "read-only transaction",
		"WITH x AS (INSERT INTO log VALUES ('a') RETURNING 1) SELECT * FROM x":   "",
		"WITH x AS (DELETE FROM orders RETURNING 1) SELECT * FROM x":             "",
		"WITH x AS (SELECT 1) DELETE FROM orders":                                "",
		"SELECT * INTO made FROM orders":                                         "",
		"SELECT * INTO TEMP made FROM orders":                                    "",
		"SELECT * FROM orders FOR UPDATE":                                        "",
		"LISTEN a":                                                               "must begin with",
		"NOTIFY a":                                                               "must begin with",
		"SET statement_timeout = 0":                                              "must begin with",
		"SET ROLE postgres":                                                      "must begin with",
		"RESET ALL":                                                              "must begin with",
		"BEGIN":                                                                  "must begin with",
		"COMMIT":                                                                 "must begin with",
		"DO $$ BEGIN END $$":                                                     "must begin with",
		"CALL write_log()":                                                       "must begin with",
		"EXPLAIN ANALYZE SELECT 1":                                               "must begin with",
		"PREPARE a AS SELECT 1":                                                  "must begin with",
		"CREATE TABLE made (a int)":                                              "must begin with",
		"SELECT $1":                                                              "parameters",
		"SELECT 'open":                                                           "does not end",
		"SELECT \"open":                                                          "does not end",
		"SELECT $a$open$b$":                                                      "does not end",
		"/* open":                                                                "does not end",
		"SELECT 1\x01":                                                           "control character",
		"":                                                                       "",
		"SELECT count(1) f(a)":                                                   "syntax error",
		"SELECT * FROM orders OFFSET 0 ROWS FETCH FIRST 1 ROW ONLY; --":          "",
	} {
		if query != "" && want != "" || strings.HasPrefix(query, "WITH") || strings.Contains(query, "INTO") || strings.Contains(query, "FOR UPDATE") {
			d.refuses(query, want)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a file was made")
	}
	if got := s.run("SELECT (SELECT count(*) FROM log), (SELECT count(*) FROM orders), (SELECT count(*) FROM pg_class WHERE relname = 'made')"); strings.Join(got[0], " ") != "0 2 0" {
		t.Errorf("log, orders, made tables: %v", got)
	}
	if got := s.run("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"); got[0][0] != "0" {
		t.Error("an advisory lock is left")
	}
}

// What is called without parentheses, and by operators, casts and aggregates, is known from the server.
func TestPostgresCallsOnlyKnownFunctions(t *testing.T) {
	s := newServer(t)
	d := s.desk()
	s.run(`CREATE TYPE pair AS (a int, b int); GRANT SELECT ON orders TO PUBLIC;
		CREATE FUNCTION secret_words(text) RETURNS text LANGUAGE sql SECURITY DEFINER AS $$ SELECT name FROM secret.salaries $$;
		CREATE FUNCTION whole(orders) RETURNS text LANGUAGE sql SECURITY DEFINER AS $$ SELECT name FROM secret.salaries $$;
		CREATE FUNCTION words(text, text) RETURNS boolean LANGUAGE sql SECURITY DEFINER AS $$ SELECT true $$;
		CREATE FUNCTION pair_words(pair, pair) RETURNS boolean LANGUAGE sql SECURITY DEFINER AS $$ SELECT true $$;
		CREATE FUNCTION pair_text(pair) RETURNS text LANGUAGE sql SECURITY DEFINER AS $$ SELECT name FROM secret.salaries $$;
		CREATE FUNCTION rows_of(int) RETURNS SETOF text LANGUAGE sql SECURITY DEFINER AS $$ SELECT name FROM secret.salaries $$;
		CREATE OPERATOR === (LEFTARG = text, RIGHTARG = text, FUNCTION = words);
		CREATE OPERATOR = (LEFTARG = pair, RIGHTARG = pair, FUNCTION = pair_words);
		CREATE OPERATOR ## (RIGHTARG = text, FUNCTION = secret_words);
		CREATE CAST (pair AS text) WITH FUNCTION pair_text(pair) AS IMPLICIT;
		CREATE AGGREGATE worst(text) (SFUNC = textcat, STYPE = text, FINALFUNC = secret_words);
		CREATE VIEW named AS SELECT secret_words(customer) AS word FROM orders; GRANT SELECT ON named TO PUBLIC`)
	for query, want := range map[string]string{
		"SELECT (customer).secret_words FROM orders":                                                   "the function public.secret_words is not one",
		"SELECT o.secret_words FROM (SELECT 'a'::text) AS o":                                           "", // a column that is missing
		"SELECT o.whole FROM orders o":                                                                 "the function public.whole is not one",
		`SELECT (o)."whole" FROM orders AS o`:                                                          "the function public.whole is not one",
		"SELECT ('SELECT ''a''::tsvector'::text).ts_stat":                                              "the function ts_stat is not one",
		"SELECT (x.q).ts_stat FROM (VALUES ('SELECT 1'::text)) AS x(q)":                                "the function ts_stat is not one",
		"SELECT x.ts_stat FROM unnest(ARRAY['SELECT 1'::text]) AS x":                                   "the function ts_stat is not one",
		`SELECT (1::oid)."lo_get"`:                                                                     "the function lo_get is not one",
		"SELECT (1::float8).pg_sleep":                                                                  "the function pg_sleep is not one",
		"SELECT (1).pg_terminate_backend":                                                              "the function pg_terminate_backend is not one",
		"SELECT ('statement_timeout'::text).current_setting":                                           "the function current_setting is not one",
		"SELECT (7::bigint).pg_advisory_lock":                                                          "the function pg_advisory_lock is not one",
		"WITH x AS (SELECT (1::float8).pg_sleep) SELECT 1":                                             "the function pg_sleep is not one",
		"SELECT (SELECT (1::float8).pg_sleep IS NULL)":                                                 "the function pg_sleep is not one",
		"SELECT 1 FROM orders ORDER BY (1::float8).pg_sleep IS NULL":                                   "the function pg_sleep is not one",
		"SELECT 1 FROM orders GROUP BY (1::float8).pg_sleep IS NULL":                                   "the function pg_sleep is not one",
		"SELECT 1 FROM orders HAVING (1::float8).pg_sleep IS NULL":                                     "the function pg_sleep is not one",
		"SELECT 1 LIMIT (SELECT count((1::float8).pg_sleep IS NULL))":                                  "the function pg_sleep is not one",
		"SELECT count(*) FILTER (WHERE (1::float8).pg_sleep IS NULL)":                                  "the function pg_sleep is not one",
		"SELECT count(*) OVER (ORDER BY (1::float8).pg_sleep IS NULL)":                                 "the function pg_sleep is not one",
		"SELECT 1 FROM orders a JOIN orders b ON (1::float8).pg_sleep IS NULL":                         "the function pg_sleep is not one",
		"SELECT CASE WHEN (1::float8).pg_sleep IS NULL THEN 1 END":                                     "the function pg_sleep is not one",
		"SELECT (ARRAY[1])[CASE WHEN (1::float8).pg_sleep IS NULL THEN 1 END]":                         "the function pg_sleep is not one",
		"VALUES ((1::float8).pg_sleep IS NULL)":                                                        "the function pg_sleep is not one",
		"SELECT 1 UNION SELECT CASE WHEN (1::float8).pg_sleep IS NULL THEN 1 END":                      "the function pg_sleep is not one",
		"SELECT * FROM rows_of(1) AS x":                                                                "the function public.rows_of is not one",
		"SELECT * FROM ROWS FROM (rows_of(1), generate_series(1, 2)) AS x":                             "the function public.rows_of is not one",
		"SELECT * FROM orders, LATERAL rows_of(id) AS x":                                               "the function public.rows_of is not one",
		"SELECT ## 'a'::text":                                                                          "is not one that queries may use",
		"SELECT 'a'::text === 'b'":                                                                     "is not one that queries may use",
		"SELECT 'a'::text OPERATOR(public.===) 'b'":                                                    "is not one that queries may use",
		"SELECT 'a'::text === ANY (ARRAY['b'])":                                                        "is not one that queries may use",
		"SELECT 'a' === ALL (SELECT customer FROM orders)":                                             "is not one that queries may use",
		"SELECT (SELECT ROW(1, 2)::pair) IS DISTINCT FROM (SELECT ROW(1, 2)::pair)":                    "is not one that queries may use",
		"SELECT nullif(ROW(1, 2)::pair, ROW(1, 2)::pair)":                                              "is not one that queries may use",
		"SELECT CASE ROW(1, 2)::pair WHEN ROW(1, 2)::pair THEN 1 END":                                  "is not one that queries may use",
		"SELECT ROW(1, 2)::pair = ANY (ARRAY[ROW(1, 2)::pair])":                                        "is not one that queries may use",
		"SELECT 1 FROM (SELECT ROW(1, 2)::pair AS p) a JOIN (SELECT ROW(1, 2)::pair AS p) b USING (p)": "is not one that queries may use",
		"SELECT CAST(ROW(1, 2)::pair AS text)":                                                         "the function public.pair_text is not one",
		"SELECT upper(ROW(1, 2)::pair)":                                                                "the function public.pair_text is not one",
		"SELECT ROW(1, 2)::pair || 'a'":                                                                "", // the implicit cast, or no operator
		"SELECT worst(customer) FROM orders":                                                           "the function public.worst is not one",
		"SELECT worst(customer) OVER () FROM orders":                                                   "the function public.worst is not one",
		`SELECT 'secret.salaries'::"regclass"`:                                                         "the type regclass is not supported",
		`SELECT "regclass" 'secret.salaries'`:                                                          "the type regclass is not supported",
		"SELECT 1259::oid::text::\"regclass\"":                                                         "the type regclass is not supported",
		"SELECT '{secret.salaries}'::_regclass":                                                        "the type _regclass is not supported",
		"SELECT '(1,a,2,3,b,t,t,4,5,6,7,8,secret.fn,-,-)'::pg_operator":                                "the table pg_catalog.pg_operator is not one",
		"SELECT '{}'::_pg_operator, '{}'::\"pg_class\"[]":                                              "the table pg_catalog.pg_",
		"SELECT 1 FROM orders FOR SHARE":                                                               "must only read",
		"SELECT 'postgres=r/postgres'::aclitem":                                                        "the type aclitem is not supported",
		"SELECT to_regclass('secret.salaries')":                                                        "regclass",
		"SELECT (1259::oid).regclass":                                                                  "the type regclass is not supported",
		"SELECT current_user":                                                                          "current_user",
		"SELECT session_user || current_role || user || current_catalog":                               "current_user",
		"SELECT current_schema":                                                                        "current_user",
		`SELECT 1 AS "` + strings.Repeat("{", 40) + `"`:                                                "a name is too long",
		"SELECT 1 = ANY (ARRAY[" + strings.TrimSuffix(strings.Repeat("(1),", 8000), ",") + "]) AND (1::float8).pg_sleep IS NULL": "pg_sleep",
	} {
		d.refuses(query, want)
	}

	// The author of a view decides what it calls.
	if got := d.must("SELECT word FROM named LIMIT 1"); got[0] != `"Ada"` {
		t.Error(got)
	}
	granted := func() string {
		all, err := d.connections.Granted(t.Context(), "acme", d.databases[0], func(context.Context, string) (string, error) { return d.secrets["secret:shop"], nil })
		if err != nil {
			t.Error(err)
		}
		return strings.Join(all, " ")
	}
	if got, want := granted(), "public.pair_text(pair) public.pair_words(pair, pair) public.rows_of(integer) public.secret_words(text) public.whole(orders)"; got != want {
		t.Errorf("the role may execute %s", got)
	}
	s.run("REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC; GRANT EXECUTE ON FUNCTION secret_words(text) TO reader_" + s.suffix)
	if got := granted(); got != "" {
		t.Errorf("the role may still execute %s", got)
	}
	if got := d.must("SELECT word FROM named LIMIT 1"); got[0] != `"Ada"` {
		t.Error(got)
	}

	for _, query := range []string{
		`SELECT 1 AS ":funcid 1", 2 AS "{FUNCEXPR :funcid 2626}", 3 AS "a
b} (", 4 AS "<>", 5 AS """q""", 6 AS "\\", 7 AS "A name of several words, so long that it goes over lines"`,
		"SELECT (o).id, (o.details).jsonb_typeof, o FROM orders AS o WHERE (o.customer).length > 2",
		"SELECT overlay('abc' placing 'x' from 1), position('a' in 'b'), substring('abc' from 1 for 2), substring('abc' similar 'a#\"b#\"c' escape '#'), trim(both 'x' from 'xax'), normalize('a'), 'a' IS NORMALIZED",
		"SELECT extract(year from at), at AT TIME ZONE 'UTC', date_trunc('day', at), at + interval '1 day', at::date, (at, at) OVERLAPS (at, interval '1 day'), age(at), now(), current_date, localtimestamp(0) FROM orders",
		"SELECT customer LIKE 'A%' ESCAPE '#', customer ILIKE '%a', customer SIMILAR TO 'A|B', customer ~* 'a', customer || id || total FROM orders",
		"SELECT id::text::numeric(10,1)::int8::bit(8), total::varchar(3), '{1,2}'::int[], ARRAY[1,2]::text[], (ARRAY[1,2])[1:1], 'a'::\"char\", '2026-01-01'::date::timestamptz FROM orders",
		"SELECT sum(id) OVER w, rank() OVER (PARTITION BY paid ORDER BY at RANGE BETWEEN interval '1 day' PRECEDING AND CURRENT ROW), lag(id) OVER w FROM orders WINDOW w AS (ORDER BY id ROWS 1 PRECEDING)",
		"SELECT paid, grouping(paid), percentile_cont(0.5) WITHIN GROUP (ORDER BY id), array_agg(DISTINCT id ORDER BY id), mode() WITHIN GROUP (ORDER BY id) FROM orders GROUP BY CUBE (paid), GROUPING SETS ((), (paid)) HAVING count(*) > 0",
		"WITH RECURSIVE t(n, m) AS (SELECT 1, 2 UNION ALL SELECT n + 1, m FROM t WHERE n < 3) SEARCH DEPTH FIRST BY n SET ordered CYCLE n SET again USING path SELECT * FROM t",
		"SELECT * FROM orders TABLESAMPLE BERNOULLI (50) REPEATABLE (1) JOIN orders b USING (id) CROSS JOIN (orders c NATURAL LEFT JOIN (SELECT 1 AS id) e)",
		"SELECT DISTINCT ON (paid) * FROM orders o CROSS JOIN LATERAL jsonb_each(o.details) WITH ORDINALITY AS j(k, v, n) ORDER BY paid, id DESC NULLS LAST OFFSET 0 ROWS FETCH FIRST 3 ROWS WITH TIES",
		"SELECT (1, 2) < (2, 3), (1, 2) = (1, 2), 1 IS DISTINCT FROM 2, nullif(1, 2), greatest(1, 2.0), coalesce(NULL, 1), 1 BETWEEN SYMMETRIC 2 AND 0, 1 IN (1, 2), 1 <> ALL (ARRAY[2]), (1, 2) IN (SELECT 1, 2), ARRAY(SELECT 1), NOT EXISTS (SELECT 1)",
		"SELECT xmlelement(name a, xmlattributes(1 AS b), 'c'), xmlforest(1 AS a), xpath('/a/text()', '<a>1</a>'), xmlexists('/a' PASSING xml '<a/>')",
		"SELECT * FROM xmltable('/r/a' PASSING xml '<r><a>1</a></r>' COLUMNS n int PATH '.', t text DEFAULT 'x')",
		"SELECT * FROM json_to_record('{\"a\": 1}') AS x(a int), jsonb_path_query('[1,2]', '$[*]') AS p",
		"SELECT to_tsvector('english', customer) @@ to_tsquery('english', 'ada'), ts_rank(to_tsvector('simple', customer), plainto_tsquery('ada')) FROM orders",
		"SELECT details -> 'a' ->> 0, details['a'], details @> '{}', details ? 'a', details #- '{a}', jsonb_pretty(details), to_jsonb(o) FROM orders o",
		"SELECT customer COLLATE \"C\" FROM orders ORDER BY customer COLLATE \"C\" USING >",
		"SELECT id FROM orders EXCEPT SELECT 3 INTERSECT SELECT 4 UNION ALL (VALUES (1), (2))",
		"SELECT int4range(1, 5) @> 3, numrange(1, 2) && numrange(2, 3), point(1, 2) <-> point(3, 4), inet '10.0.0.1' << inet '10.0.0.0/8', money '1.50' * 2, random() < 2, gen_random_uuid() IS NULL, E'\\\\x00'::bytea",
		"SELECT 'pg_sleep(1)', $$ (x).ts_stat $$ -- (x).ts_stat",
	} {
		if a := d.query(query); a.Error != "" {
			t.Errorf("%s\nis refused: %s", query, a.Error)
		}
	}
}

// Operators and functions of extensions that are known are allowed; others are not.
func TestPostgresExtensions(t *testing.T) {
	s := newServer(t)
	d := s.desk()
	if got := s.run("SELECT count(*) FROM pg_available_extensions WHERE name IN ('citext', 'pg_trgm', 'dblink')"); got[0][0] != "3" {
		t.Skip("the server has no extensions")
	}
	s.run("CREATE EXTENSION citext; CREATE EXTENSION pg_trgm; CREATE EXTENSION dblink; CREATE TABLE people (email citext); INSERT INTO people VALUES ('Ada@example.com'); GRANT SELECT ON people TO PUBLIC")
	for query, want := range map[string]string{
		"SELECT email FROM people WHERE email = 'ADA@EXAMPLE.COM'":         `"Ada@example.com"`,
		"SELECT upper(email::text) FROM people GROUP BY email":             `"ADA@EXAMPLE.COM"`,
		"SELECT max(email) FROM people":                                    `"Ada@example.com"`,
		"SELECT similarity('abc', 'abc') FROM people WHERE 'abc' % 'abcd'": "1",
	} {
		if got := d.must(query); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %v, want %s", query, got, want)
		}
	}
	d.refuses("SELECT ('host=192.0.2.1'::text).dblink_connect", "the function public.dblink_connect is not one")
	d.refuses("SELECT set_limit(0.1)", "the function public.set_limit is not one")
}

// E02
func TestPostgresReadsOnlyAllowedTables(t *testing.T) {
	s := newServer(t)
	d := s.desk()
	s.run("CREATE TABLE public.notes (note text); INSERT INTO notes VALUES ('a'); GRANT SELECT ON notes TO PUBLIC")
	for _, query := range []string{
		"SELECT * FROM secret.salaries",
		`SELECT * FROM "secret"."salaries"`,
		"SELECT * FROM SECRET . salaries",
		"SELECT * FROM " + s.database + ".secret.salaries",
		"TABLE secret.salaries",
		"SELECT (SELECT max(amount) FROM secret.salaries)",
		"SELECT * FROM orders NATURAL JOIN secret.salaries",
		"SELECT average FROM averages UNION SELECT amount FROM secret.salaries",
		"WITH averages AS (SELECT * FROM secret.salaries) SELECT * FROM averages",
		"SELECT 1 WHERE EXISTS (SELECT FROM secret.salaries)",
		"SELECT 1 FROM orders ORDER BY (SELECT max(amount) FROM secret.salaries)",
		"SELECT jsonb_populate_record(null::secret.salaries, '{}')",
	} {
		d.refuses(query, `the schema "secret" is not one that queries may use; allowed: public`)
	}
	d.refuses("SELECT * FROM salaries", `relation "salaries" does not exist`)
	d.databases[0].Schemas = []string{"public.orders", "public.averages"}
	d.refuses("SELECT * FROM notes", "the table public.notes is not one that queries may use; allowed: public.orders, public.averages")
	d.refuses("SELECT * FROM averages a, notes", "the table public.notes is not one")
	d.refuses("WITH orders AS (SELECT * FROM public.notes) SELECT * FROM orders", "the table public.notes is not one")
	d.refuses("SELECT 1 WHERE false AND EXISTS (SELECT FROM notes)", "the table public.notes is not one")
	if d.must("SELECT average FROM averages")[0] != "100000" {
		t.Error("a view of another schema cannot be read")
	}
	d.databases[0].Schemas = []string{"secret", "public"}
	if d.must("SELECT amount FROM salaries")[0] != "100000" {
		t.Error("an allowed schema cannot be read")
	}
	d.schemas = map[string][]string{"public": {}, "missing": {}} // of an assignment
	d.refuses("SELECT amount FROM secret.salaries", `the schema "secret" is not one that queries may use; allowed: public`)
	d.databases[0].Schemas = []string{"pg_catalog", "information_schema"}
	d.schemas = nil
	if len(d.must("SELECT relname FROM pg_class LIMIT 1")) != 1 || len(d.must("SELECT table_name FROM information_schema.tables LIMIT 1")) != 1 {
		t.Error("catalogues that are allowed cannot be read")
	}
}

// Sessions are as before after every call.
func TestPostgresSessionsAreReset(t *testing.T) {
	s := newServer(t)
	d := s.desk()
	s.run(`CREATE FUNCTION dirty() RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_lock(4711); PERFORM set_config('statement_timeout', '0', false); PERFORM set_config('search_path', 'secret', false);
		CREATE TEMP TABLE IF NOT EXISTS orders (id int); RETURN 1; END $$;
		CREATE FUNCTION locks() RETURNS int LANGUAGE sql AS $$ SELECT pg_advisory_lock(4711)::text::int $$;
		CREATE FUNCTION lock() RETURNS int LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_lock(4711); PERFORM set_config('search_path', 'secret', false); RETURN 1; END $$;
		CREATE VIEW locked AS SELECT lock() AS n; GRANT SELECT ON locked TO PUBLIC`)
	if d.must("SELECT n FROM locked")[0] != "1" {
		t.Error("the view cannot be read")
	}
	if got := s.run("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4711"); got[0][0] != "0" {
		t.Error("the advisory lock of a view is left")
	}
	if d.must("SELECT count(*) FROM orders")[0] != "2" {
		t.Error("the search path of an earlier call is left")
	}
	if n := d.dialled.Load(); n != 1 {
		t.Errorf("%d connections, want the same one", n)
	}
}

// sandbox.md, section 2: roles that no transaction confines are refused, at each connect and for each call.
func TestPostgresRefusesDangerousRoles(t *testing.T) {
	s := newServer(t)
	d := s.desk()
	group := s.role("ops", "NOINHERIT")
	s.run("GRANT pg_read_server_files TO " + group)
	for name, role := range map[string]string{
		"is a superuser":                  s.role("super", "SUPERUSER"),
		"has REPLICATION":                 s.role("repl", "REPLICATION"),
		"has CREATEROLE":                  s.role("creator", "CREATEROLE"),
		"pg_execute_server_program":       s.role("exec", "IN ROLE pg_execute_server_program"),
		"pg_read_server_files":            s.role("read", "IN ROLE pg_read_server_files"),
		"pg_write_server_files":           s.role("write", "NOINHERIT IN ROLE pg_write_server_files"),
		"pg_signal_backend":               s.role("signal", "IN ROLE pg_signal_backend"),
		"is a member of ops":              s.role("nested", "NOINHERIT IN ROLE "+group),
		"is a member of pg_read_server_f": s.role("nested2", "NOINHERIT IN ROLE "+group),
	} {
		d.secrets["secret:shop"] = s.as(role)
		d.refuses("SELECT 1", "the role of the database may do more than read")
		_, err := d.connections.Check(t.Context(), "acme", d.databases[0], func(context.Context, string) (string, error) { return s.as(role), nil })
		if !sqltool.IsDangerous(err) || !strings.Contains(err.Error(), strings.TrimPrefix(name, "is a member of ops")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	plain := s.role("plain", "")
	d.secrets["secret:shop"] = s.as(plain)
	if got := d.must("SELECT 1"); got[0] != "1" {
		t.Error(got)
	}
	s.run("ALTER ROLE " + plain + " SUPERUSER") // its connection is kept
	d.refuses("SELECT 1", "the role of the database may do more than read")
}

// E01
func TestPostgresIsBounded(t *testing.T) {
	s := newServer(t)
	d := s.desk()
	began := time.Now()
	a := d.query("SELECT generate_series(1, 100000000), repeat('x', 100)")
	if !a.Truncated || a.RowCount < 100 || a.RowCount != len(a.Rows) || utf8.RuneCountInString(a.text) > 50_000 {
		t.Errorf("%d rows, %d characters: %.100s", a.RowCount, len(a.text), a.text)
	}
	t.Logf("the first %d rows of 100 million took %s", a.RowCount, time.Since(began))
	d.refuses("SELECT repeat('x', 50000000)", "a row is larger than 1048576 bytes")
	d.databases[0].StatementTimeout = 300 * time.Millisecond
	d.refuses("SELECT count(*) FROM generate_series(1, 1000000000) AS g(n)", "took longer than 300ms and was stopped")
	d.refuses("SELECT n FROM generate_series(1, 1000000000) AS g(n) ORDER BY n DESC", "took longer than 300ms and was stopped")
	if got := s.run("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid()"); got[0][0] != "0" {
		t.Error("a statement goes on after its call")
	}
}

// The connections of an org are bounded, and those without a call are closed.
func TestPostgresConnections(t *testing.T) {
	s := newServer(t)
	d := s.desk()
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		d.dialled.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	d.use(sqltool.ConnectionOptions{Dial: dial, OperatorDial: dial, IdleTime: 50 * time.Millisecond})
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if a := d.query("SELECT count(*) FROM generate_series(1, 100000) AS g(n)"); a.Error != "" {
				t.Error(a.Error)
			}
		})
	}
	all.Wait()
	if n := d.dialled.Load(); n > 20 || n < 1 {
		t.Errorf("%d connections", n)
	}
	open := func() string {
		return s.run("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'turnpike'")[0][0]
	}
	for open() != "0" {
		if t.Context().Err() != nil {
			t.Fatal("connections without a call stay open")
		}
	}

	// One that the server has ended is replaced.
	d.use(sqltool.ConnectionOptions{Dial: dial, OperatorDial: dial})
	d.must("SELECT 1")
	s.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'turnpike'")
	d.must("SELECT 1")
	d.connections.Close()
	for open() != "0" {
		if t.Context().Err() != nil {
			t.Fatal("Close leaves connections open")
		}
	}
}

// The outbound policy decides about what an org names; the run ends. The operator's file may name private addresses. // K04
func TestPostgresAddressesPassTheOutboundPolicy(t *testing.T) {
	s := newServer(t)
	d := s.desk()
	out := egress.New(egress.DefaultPolicy(), egress.Options{})
	t.Cleanup(out.CloseIdleConnections)
	d.use(sqltool.ConnectionOptions{Dial: out.DialGuarded, OperatorDial: out.DialOperator})
	reader := d.secrets["secret:shop"]
	a := d.query("SELECT 1")
	var fatal tool.Blocked
	if !errors.As(a.fatal, &fatal) || !errors.Is(a.fatal, tool.ErrNotSent) {
		t.Fatalf("%+v", a)
	}
	if reason, _ := fatal.Blocked(); reason != "loopback" {
		t.Errorf("refused because %q", reason)
	}
	d.databases[0].FromFile = true // but the vault belongs to the org
	if a := d.query("SELECT 1"); !errors.As(a.fatal, &fatal) {
		t.Errorf("%+v", a)
	}
	d.secrets["env:SHOP"], d.databases[0].URL = reader, "env:SHOP"
	if got := d.must("SELECT 1"); got[0] != "1" {
		t.Error(got)
	}
	d.databases[0].FromFile, d.databases[0].URL = false, "secret:shop"
	policy := egress.DefaultPolicy()
	policy.Allowlist = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	out.SetPolicy(policy)
	if got := d.must("SELECT 1"); got[0] != "1" {
		t.Error(got)
	}
	for _, host := range []string{"169.254.169.254", "[::ffff:169.254.169.254]", "0x7f.1", "metadata.google.internal"} {
		d.secrets["secret:shop"] = "postgres://a:b@" + host + ":5432/x?sslmode=disable"
		if a := d.query("SELECT 1"); a.Error == "" || strings.Contains(a.text, "169.254") {
			t.Errorf("%s: %+v", host, a)
		}
	}
}

// What fails names neither the address nor the role nor the password, to the model and in the log.
func TestPostgresFailuresSayNothingSecret(t *testing.T) {
	t.Setenv("PGPASSWORD", "of-the-gateway")
	t.Setenv("PGSSLMODE", "verify-full")
	t.Setenv("PGOPTIONS", "-c default_transaction_read_only=off")
	s := newServer(t)
	d := s.desk()
	reader := d.secrets["secret:shop"]
	wrong := strings.Replace(strings.Replace(reader, "Pa55-of-the-role", "wr0ng-password", 1), "reader_", "reader_missing_", 1)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	u, err := url.Parse(reader)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = closed.Addr().String()
	secure := strings.Replace(reader, "sslmode=disable", "sslmode=verify-full", 1)
	for name, text := range map[string]string{"password": wrong, "nobody listens": u.String(), "no TLS": secure} {
		d.secrets["secret:shop"] = text
		a := d.query("SELECT 1")
		if a.Setting != "databases.url" {
			t.Errorf("%s: %+v", name, a)
		}
		for _, secret := range []string{"wr0ng", "Pa55", "reader_", "127.0.0.1", "of-the-gateway"} {
			if strings.Contains(a.text, secret) {
				t.Errorf("%s: the model reads %s", name, a.text)
			}
		}
	}
}

// A server that sends more than it should takes no memory and no time.
func TestPostgresHostileServers(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"a huge message": func(c net.Conn) {
			_, _ = c.Write(append([]byte{'R'}, binary.BigEndian.AppendUint32(nil, 0x7fffffff)...))
			_, _ = io.Copy(io.Discard, c)
		},
		"garbage": func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")) },
		"silence": func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"closes":  func(c net.Conn) {},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		all.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				all.Go(func() { serve(c); _ = c.Close() })
			}
		})
		d := newDesk(t, org.Database{Name: "shop", URL: "postgres://a@" + l.Addr().String() + "/x?sslmode=disable", FromFile: true})
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if name != "silence" {
			ctx = t.Context()
		}
		r, err := d.tools()[0].Call(ctx, tool.Call{Arguments: []byte(`{"query":"SELECT 1"}`)})
		if err == nil && !r.IsError {
			t.Errorf("%s: %+v", name, r)
		}
		cancel()
		_ = l.Close()
		all.Wait()
	}
}
