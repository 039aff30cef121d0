package storecopy

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// left are the tables that are not copied, and why.
func left() map[string]string {
	const own = "each side has its own"
	return map[string]string{
		"goose_db_version": own,
		"schema_oldest":    own,
		"settings_epoch":   "it counts changes for replicas that run, and none does",
		"settings_changes": "it counts changes for replicas that run, and none does",
		"replicas":         "no replica runs",
		"owners":           "no owner of runs is alive",
		"duties":           "no replica runs",
		"probes":           "it is written to see whether the disk has room",
		"tool_cache":       "answers of tools can be asked for again",
		"tool_cache_sizes": "answers of tools can be asked for again",
		"installation":     "its keys are carried over by themselves",
		"bucket_files":     "files of buckets are copied with their contents",
		"file_chunks":      "files of buckets are copied with their contents",
		"code_places":      "working directories of code are not copied",
		stateTable:         "it belongs to the copy",
	}
}

// leftColumns are columns that only one side has, and why they are not copied: they have a default there.
func leftColumns() map[string]string {
	return map[string]string{
		"outbox.claimed_by":        "claims are not taken over",
		"hook_messages.claimed_by": "claims are not taken over",
	}
}

// counted are columns that triggers change when rows of other tables are added. They get the values of the source at the end.
func counted() map[string][]string { return map[string][]string{"webhooks": {"waiting"}} }

// kind is the type of a column.
type kind int

const (
	number kind = iota
	text
	body // bytes
)

// column is one of a table. Both sides have it.
type column struct {
	name           string
	source, target kind
}

// table is one that both sides have.
type table struct {
	name    string
	columns []column
	key     []int // the places of the primary key in columns; none = the table has none
	refers  []string
}

// quoted returns the names of columns, as statements have them.
func (t *table) quoted(places []int) string {
	names := make([]string, len(places))
	for i, at := range places {
		names[i] = quote(t.columns[at].name)
	}
	return strings.Join(names, ", ")
}

func (t *table) all() []int {
	places := make([]int, len(t.columns))
	for i := range places {
		places[i] = i
	}
	return places
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// found is a table as a database has it.
type found struct {
	kinds  map[string]kind
	order  []string // of the columns
	key    map[int]string
	refers []string
}

const sqliteColumns = `SELECT m.name, c.name, c.type, c.pk FROM sqlite_schema m, pragma_table_info(m.name) c
	WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY m.name, c.cid`

const sqliteReferences = `SELECT DISTINCT m.name, f."table" FROM sqlite_schema m, pragma_foreign_key_list(m.name) f WHERE m.type = 'table'`

const serverColumns = `SELECT c.relname, a.attname, format_type(a.atttypid, NULL), coalesce(array_position(k.conkey, a.attnum), 0)
	FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
	LEFT JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'p'
	WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' ORDER BY c.relname, a.attnum`

const serverReferences = `SELECT DISTINCT c.relname, r.relname FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
	JOIN pg_class r ON r.oid = k.confrelid WHERE k.contype = 'f' AND k.connamespace = current_schema()::regnamespace`

// tables returns those of a side.
func (s *side) tables(ctx context.Context) (map[string]*found, error) {
	columns, references := sqliteColumns, sqliteReferences
	if s.server {
		columns, references = serverColumns, serverReferences
	}
	all := map[string]*found{}
	err := s.each(ctx, columns, func(rows *sql.Rows) error {
		var table, name, typ string
		var key int
		if err := rows.Scan(&table, &name, &typ, &key); err != nil {
			return err
		}
		kinds := map[string]kind{"integer": number, "bigint": number, "text": text, "blob": body, "bytea": body}
		k, ok := kinds[strings.ToLower(typ)]
		if _, skip := left()[table]; !ok && !skip {
			return fmt.Errorf("%s: the column %s of the table %s has the type %s, which is not known", s.name, name, table, typ)
		}
		t := all[table]
		if t == nil {
			t = &found{kinds: map[string]kind{}, key: map[int]string{}}
			all[table] = t
		}
		t.kinds[name], t.order = k, append(t.order, name)
		if key > 0 {
			t.key[key] = name
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, s.each(ctx, references, func(rows *sql.Rows) error {
		var from, to string
		err := rows.Scan(&from, &to)
		if err == nil && from != to {
			all[from].refers = append(all[from].refers, to)
		}
		return err
	})
}

// each calls do for each row of a query.
func (s *side) each(ctx context.Context, query string, do func(*sql.Rows) error, args ...any) error {
	rows, err := s.conn.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := do(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// makePlan finds out which tables are copied, in an order in which each follows those that it refers to.
func (c *copying) makePlan(ctx context.Context) error {
	from, err := c.source.tables(ctx)
	if err != nil {
		return err
	}
	to, err := c.target.tables(ctx)
	if err != nil {
		return err
	}
	for name, why := range left() {
		if (from[name] != nil || to[name] != nil) && name != stateTable {
			c.result.Left = append(c.result.Left, Left{name, why})
		}
	}
	slices.SortFunc(c.result.Left, func(a, b Left) int { return strings.Compare(a.Table, b.Table) })
	plan := map[string]*table{}
	for _, name := range namesOf(from, to) {
		if plan[name], err = c.match(name, from[name], to[name]); err != nil {
			return err
		}
	}
	c.plan = inOrder(plan)
	return nil
}

// namesOf returns the names of the tables that are copied.
func namesOf(from, to map[string]*found) (names []string) {
	for _, side := range []map[string]*found{from, to} {
		for name := range side {
			if _, skip := left()[name]; !skip && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// match compares a table of both sides.
func (c *copying) match(name string, from, to *found) (*table, error) {
	if from == nil || to == nil {
		has := c.source
		if from == nil {
			has = c.target
		}
		return nil, fmt.Errorf("only %s has the table %s, and this build does not know why: use the build that made it", has.name, name)
	}
	file, server := from, to
	if c.source.server {
		file, server = to, from
	}
	if k, ok := server.kinds["rowid"]; ok { // a file has it, too, without a name
		if _, named := file.kinds["rowid"]; !named {
			file.kinds["rowid"], file.order = k, append(file.order, "rowid")
		}
	}
	t := &table{name: name, refers: append(slices.Clone(from.refers), to.refers...)}
	for _, column := range append(slices.Clone(from.order), to.order...) {
		_, inSource := from.kinds[column]
		_, inTarget := to.kinds[column]
		if inSource && inTarget {
			continue
		}
		if _, known := leftColumns()[name+"."+column]; !known {
			return nil, fmt.Errorf("only one side has the column %s of the table %s, and this build does not know why", column, name)
		}
	}
	for _, n := range from.order {
		if k, ok := to.kinds[n]; ok {
			t.columns = append(t.columns, column{n, from.kinds[n], k})
		}
	}
	slices.SortFunc(t.columns, func(a, b column) int { return strings.Compare(a.name, b.name) })
	for i := 1; i <= len(from.key); i++ {
		if from.key[i] != to.key[i] {
			return nil, fmt.Errorf("the table %s has another primary key in %s", name, c.target.name)
		}
		t.key = append(t.key, slices.IndexFunc(t.columns, func(c column) bool { return c.name == from.key[i] }))
	}
	return t, nil
}

// inOrder returns the tables so that each follows those that it refers to.
func inOrder(tables map[string]*table) (all []*table) {
	placed := map[string]bool{}
	var place func(name string)
	place = func(name string) {
		t := tables[name]
		if t == nil || placed[name] {
			return
		}
		placed[name] = true
		slices.Sort(t.refers)
		for _, other := range t.refers {
			place(other)
		}
		all = append(all, t)
	}
	names := make([]string, 0, len(tables))
	for name := range tables {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		place(name)
	}
	return all
}

// fingerprint is a digest of how much there is in the source, and of the ends of its audit chains: a gateway that has used it since
// has left another one.
func (c *copying) fingerprint(ctx context.Context) ([]byte, error) {
	sum := sha256.New()
	add := func(of string, n int64) {
		_, _ = fmt.Fprintf(sum, "%d %s ", len(of), of)
		_ = binary.Write(sum, binary.BigEndian, n)
	}
	for _, t := range c.plan {
		n, err := c.source.count(ctx, t)
		if err != nil {
			return nil, err
		}
		add(t.name, n)
	}
	err := c.source.each(ctx, `SELECT org, max(n) FROM audit_log GROUP BY org ORDER BY org`, func(rows *sql.Rows) error {
		var org string
		var n int64
		err := rows.Scan(&org, &n)
		add(org, n)
		return err
	})
	return sum.Sum(nil), err
}

func (s *side) count(ctx context.Context, t *table) (n int64, err error) {
	err = s.conn.QueryRowContext(ctx, `SELECT count(*) FROM `+quote(t.name)).Scan(&n)
	return n, err
}

// wantEmpty returns an error if there is something in the target.
func (c *copying) wantEmpty(ctx context.Context) error {
	names := []string{}
	for _, t := range c.plan {
		names = append(names, t.name)
	}
	if c.target.server {
		names = append(names, "file_chunks", "bucket_files", "installation")
	}
	for _, name := range names {
		if has, err := c.target.hasTable(ctx, name); err != nil || !has {
			if err != nil {
				return err
			}
			continue
		}
		where := ""
		if name == "installation" {
			where = ` WHERE name <> 'copying'`
		}
		var full bool
		if err := c.target.conn.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM `+quote(name)+where+`)`).Scan(&full); err != nil {
			return err
		}
		if full {
			return fmt.Errorf("%s is not empty: the table %s has rows. Name another target", c.target.name, name)
		}
	}
	return nil
}

// checkTexts returns an error for the first text of the source that PostgreSQL cannot hold. Bodies, which are bytes there, may be any.
func (c *copying) checkTexts(ctx context.Context) error {
	for _, t := range c.plan {
		var places []int
		for i, one := range t.columns {
			if one.source == text && one.target == text {
				places = append(places, i)
			}
		}
		if len(places) == 0 {
			continue
		}
		total, err := c.source.count(ctx, t)
		if err != nil {
			return err
		}
		c.o.Progress.begin("checking the texts of "+t.name, total)
		key := t.key
		query := `SELECT ` + t.quoted(append(slices.Clone(key), places...)) + ` FROM ` + quote(t.name)
		values := make([]any, len(key)+len(places))
		err = c.source.each(ctx, query, func(rows *sql.Rows) error {
			if err := rows.Scan(pointers(values)...); err != nil {
				return err
			}
			c.o.Progress.add(1)
			for i, at := range places {
				if why := unfit(values[len(key)+i]); why != "" {
					return fmt.Errorf("PostgreSQL cannot hold a text of %s: the column %s of the table %s, in the row %s, %s. Change or "+
						"delete it, for example with sqlite3, and repeat the copy", c.source.name, t.columns[at].name, t.name, keyText(t, values), why)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// unfit says why PostgreSQL cannot hold a text; empty = it can.
func unfit(v any) string {
	s, _ := v.(string)
	switch {
	case strings.ContainsRune(s, 0):
		return "has a NUL"
	case !utf8.ValidString(s):
		return "is not UTF-8"
	}
	return ""
}

// keyText writes the key of a row, whose values come first.
func keyText(t *table, values []any) string {
	parts := make([]string, len(t.key))
	for i, at := range t.key {
		parts[i] = fmt.Sprintf("%s = %q", t.columns[at].name, fmt.Sprint(values[i]))
	}
	return strings.Join(parts, ", ")
}

func pointers(values []any) []any {
	to := make([]any, len(values))
	for i := range values {
		to[i] = &values[i]
	}
	return to
}
