package storecopy

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/store/postgres"
)

// stateTable says in the target how far the copy is: a row for each table, one for the files, and one of the name whole, whose
// cursor is the name of the source and whose digest its fingerprint.
const stateTable = "copy_state"

const (
	whole    = "" // no table has these names
	allFiles = "/files"
)

func (s *side) stateDDL() string {
	if s.server {
		return `CREATE TABLE ` + stateTable + ` (name text COLLATE "C" NOT NULL PRIMARY KEY, cursor bytea NOT NULL, rows bigint NOT NULL,
			digest bytea NOT NULL, done bigint NOT NULL)`
	}
	return `CREATE TABLE ` + stateTable + ` (name TEXT NOT NULL PRIMARY KEY, cursor BLOB NOT NULL, rows INTEGER NOT NULL,
		digest BLOB NOT NULL, done INTEGER NOT NULL) STRICT`
}

// state is how far a table is.
type state struct {
	name   string
	cursor []byte // the key of the last row, see encode
	rows   int64
	digest []byte // of all rows up to it, see chain
	done   bool
}

// state returns a stored one; one of nothing if there is none.
func (s *side) state(ctx context.Context, name string) (state, error) {
	st := state{name: name}
	var done int64
	err := s.conn.QueryRowContext(ctx, `SELECT cursor, rows, digest, done FROM `+stateTable+` WHERE name = `+s.arg(1), name).
		Scan(&st.cursor, &st.rows, &st.digest, &done)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	st.done = done != 0
	return st, err
}

func (s *side) setState(ctx context.Context, tx *sql.Tx, st state) error {
	done := int64(0)
	if st.done {
		done = 1
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO `+stateTable+` (name, cursor, rows, digest, done) VALUES (`+s.args(5)+`) ON CONFLICT (name)
		DO UPDATE SET cursor = excluded.cursor, rows = excluded.rows, digest = excluded.digest, done = excluded.done`,
		st.name, notNil(st.cursor), st.rows, notNil(st.digest), done)
	return err
}

func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

// args are the parameters 1 to n.
func (s *side) args(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = s.arg(i + 1)
	}
	return strings.Join(all, ", ")
}

// encode writes values so that other values are written in another way. A text and bytes are written alike: a body is the one or the
// other.
func encode(to []byte, values []any) []byte {
	for _, v := range values {
		switch v := v.(type) {
		case nil:
			to = append(to, 'n')
		case int64:
			to = binary.BigEndian.AppendUint64(append(to, 'i'), uint64(v)) //nolint:gosec // all 64 bits are written
		case string:
			to = append(binary.BigEndian.AppendUint64(append(to, 't'), uint64(len(v))), v...)
		case []byte:
			to = append(binary.BigEndian.AppendUint64(append(to, 't'), uint64(len(v))), v...)
		default:
			panic(fmt.Sprintf("storecopy: a database has returned a %T", v)) // makePlan knows the types of all columns
		}
	}
	return to
}

// decode reads values that encode has written, as those of the columns.
func decode(from []byte, kinds []kind) (values []any, err error) {
	for _, k := range kinds {
		if len(from) < 9 {
			return nil, errors.New("the place at which the copy goes on cannot be read")
		}
		n := binary.BigEndian.Uint64(from[1:])
		from = from[9:]
		switch {
		case k == number:
			values = append(values, int64(n)) //nolint:gosec // it was one
			continue
		case n > uint64(len(from)):
			return nil, errors.New("the place at which the copy goes on cannot be read")
		case k == text:
			values = append(values, string(from[:n]))
		default:
			values = append(values, slices.Clone(from[:n]))
		}
		from = from[n:]
	}
	return values, nil
}

// chain adds a row to the digest of those before it, so that pages of other sizes have the same one.
func chain(before []byte, row []any) []byte {
	sum := sha256.Sum256(encode(slices.Clone(before), row))
	return sum[:]
}

// reader reads the rows of a table, page by page.
type reader struct {
	side     *side
	table    *table
	most     int // rows of a page
	bytes    int
	next     int   // rows to ask for: what was not taken of an answer is read in vain
	after    []any // the key of the last row; nil = from the beginning
	atEnd    bool
	isSource bool
}

func (c *copying) read(s *side, t *table) *reader {
	return &reader{side: s, table: t, most: c.o.pageRows, bytes: c.o.pageBytes, next: min(64, c.o.pageRows), isSource: s == c.source}
}

// page returns the next rows: none at the end.
func (r *reader) page(ctx context.Context) (rows [][]any, err error) {
	if r.atEnd {
		return nil, nil
	}
	t := r.table
	query := `SELECT ` + t.quoted(t.all()) + ` FROM ` + quote(t.name)
	if r.after != nil {
		query += ` WHERE (` + t.quoted(t.key) + `) > (` + r.side.args(len(t.key)) + `)`
	}
	asked := r.next
	if len(t.key) == 0 {
		query += ` ORDER BY ` + t.quoted(t.all()) // it has some rows only
		asked = maxRows
	} else {
		query += ` ORDER BY ` + t.quoted(t.key)
	}
	found, err := r.side.conn.QueryContext(ctx, query+fmt.Sprintf(` LIMIT %d`, asked), r.after...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	size := 0
	for size < r.bytes && found.Next() {
		row := make([]any, len(t.columns))
		if err := found.Scan(pointers(row)...); err != nil {
			return nil, err
		}
		rows = append(rows, row)
		size += sizeOf(row)
	}
	if err := errors.Join(found.Err(), found.Close()); err != nil {
		return nil, err
	}
	r.atEnd = len(rows) < asked && size < r.bytes || len(t.key) == 0
	if len(t.key) == 0 && len(rows) == maxRows {
		return nil, errors.New("a table without a primary key has too many rows")
	}
	if n := len(rows); n > 0 {
		r.after = keyOf(t, rows[n-1])
		r.next = min(r.most, max(1, r.bytes*n/max(size, 1)))
	}
	return rows, nil
}

func keyOf(t *table, row []any) []any {
	key := make([]any, len(t.key))
	for i, at := range t.key {
		key[i] = row[at]
	}
	return key
}

func sizeOf(row []any) (n int) {
	for _, v := range row {
		switch v := v.(type) {
		case string:
			n += len(v)
		case []byte:
			n += len(v)
		}
		n += 16
	}
	return n
}

// copyTable copies what the target lacks of a table.
func (c *copying) copyTable(ctx context.Context, t *table) error {
	st, err := c.target.state(ctx, t.name)
	if err != nil {
		return err
	}
	total, err := c.source.count(ctx, t)
	if err != nil {
		return err
	}
	c.o.Progress.begin("copying "+t.name, total)
	c.o.Progress.add(int(st.rows))
	from := c.read(c.source, t)
	if len(st.cursor) > 0 {
		kinds := make([]kind, len(t.key))
		for i, at := range t.key {
			kinds[i] = t.columns[at].source
		}
		if from.after, err = decode(st.cursor, kinds); err != nil {
			return err
		}
	}
	for !st.done {
		rows, err := from.page(ctx)
		if err != nil {
			return err
		}
		for _, row := range rows {
			st.digest = chain(st.digest, row)
		}
		st.rows, st.cursor, st.done = st.rows+int64(len(rows)), encode(nil, from.after), from.atEnd
		if err := c.target.within(ctx, func(tx *sql.Tx) error {
			if err := c.target.add(ctx, tx, t, rows); err != nil {
				return err
			}
			return c.target.setState(ctx, tx, st)
		}); err != nil {
			return err
		}
		c.o.Progress.add(len(rows))
		if err := c.committed(t.name); err != nil {
			return err
		}
	}
	c.result.Tables = append(c.result.Tables, Copied{t.name, st.rows})
	return nil
}

func (c *copying) committed(what string) error {
	if c.o.after == nil {
		return nil
	}
	return c.o.after(what)
}

// add inserts rows.
func (s *side) add(ctx context.Context, tx *sql.Tx, t *table, rows [][]any) error {
	for _, row := range rows {
		for i, one := range t.columns {
			row[i] = converted(row[i], one.target)
		}
	}
	if !s.server {
		return insert(ctx, tx, t, rows)
	}
	names := make([]string, len(t.columns))
	for i, one := range t.columns {
		names[i] = one.name
	}
	_, err := postgres.Append(ctx, s.conn, t.name, names, rows)
	return err
}

// converted makes of a value one of the kind.
func converted(v any, k kind) any {
	switch v := v.(type) {
	case string:
		if k == body {
			return []byte(v)
		}
	case []byte:
		if k == text {
			return string(v)
		}
	}
	return v
}

// insert inserts rows into a file, several with one statement.
func insert(ctx context.Context, tx *sql.Tx, t *table, rows [][]any) (err error) {
	for _, n := range []int{100, 10, 1} {
		if rows, err = insertSome(ctx, tx, t, rows, n); err != nil {
			return err
		}
	}
	return nil
}

// insertSome inserts n rows at a time, and returns the fewer ones that are left.
func insertSome(ctx context.Context, tx *sql.Tx, t *table, rows [][]any, n int) ([][]any, error) {
	if len(rows) < n {
		return rows, nil
	}
	one := `(` + strings.TrimSuffix(strings.Repeat("?, ", len(t.columns)), ", ") + `)`
	statement, err := tx.PrepareContext(ctx, `INSERT INTO `+quote(t.name)+` (`+t.quoted(t.all())+`) VALUES `+
		strings.TrimSuffix(strings.Repeat(one+", ", n), ", "))
	if err != nil {
		return nil, err
	}
	defer statement.Close()
	for ; len(rows) >= n; rows = rows[n:] {
		var values []any
		for _, row := range rows[:n] {
			values = append(values, row...)
		}
		if _, err := statement.ExecContext(ctx, values...); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// recount gives the columns that triggers have changed the values of the source.
func (c *copying) recount(ctx context.Context) error {
	for _, t := range c.plan {
		columns := counted()[t.name]
		if len(columns) == 0 {
			continue
		}
		var places []int
		var sets, keys []string
		for i, name := range columns {
			places = append(places, slices.IndexFunc(t.columns, func(c column) bool { return c.name == name }))
			sets = append(sets, quote(name)+` = `+c.target.arg(i+1))
		}
		for i, at := range t.key {
			keys = append(keys, quote(t.columns[at].name)+` = `+c.target.arg(len(columns)+i+1))
		}
		statement := `UPDATE ` + quote(t.name) + ` SET ` + strings.Join(sets, ", ") + ` WHERE ` + strings.Join(keys, " AND ")
		for from := c.read(c.source, t); !from.atEnd; {
			rows, err := from.page(ctx)
			if err != nil {
				return err
			}
			if err := c.target.within(ctx, func(tx *sql.Tx) error {
				for _, row := range rows {
					var values []any
					for _, at := range append(slices.Clone(places), t.key...) {
						values = append(values, converted(row[at], t.columns[at].target))
					}
					if _, err := tx.ExecContext(ctx, statement, values...); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				return fmt.Errorf("count again in %s: %w", t.name, err)
			}
		}
	}
	return nil
}

// verifyTable compares all rows of a table.
func (c *copying) verifyTable(ctx context.Context, t *table) error {
	st, err := c.target.state(ctx, t.name)
	if err != nil {
		return err
	}
	c.o.Progress.begin("verifying "+t.name, 2*st.rows)
	one, err := c.digest(ctx, c.source, t)
	if err != nil {
		return err
	}
	other, err := c.digest(ctx, c.target, t)
	if err != nil {
		return err
	}
	if one.rows == other.rows && string(one.digest) == string(other.digest) && string(one.digest) == string(st.digest) {
		return nil
	}
	return fmt.Errorf("the copy of the table %s is not equal: %d rows with the digest %x in the source, %d with %x in the target, %d with %x "+
		"were copied. Has something written to one of them meanwhile?", t.name, one.rows, short(one.digest), other.rows, short(other.digest),
		st.rows, short(st.digest))
}

func short(digest []byte) []byte { return digest[:min(8, len(digest))] }

// digest reads a whole table.
func (c *copying) digest(ctx context.Context, s *side, t *table) (st state, err error) {
	for from := c.read(s, t); !from.atEnd; {
		rows, err := from.page(ctx)
		if err != nil {
			return st, err
		}
		for _, row := range rows {
			st.digest = chain(st.digest, row)
		}
		st.rows += int64(len(rows))
		c.o.Progress.add(len(rows))
	}
	return st, nil
}

// setSequences sees to it that what is added later gets numbers above all that were given before.
func (c *copying) setSequences(ctx context.Context) error {
	columns := map[string]string{} // of the server, by table
	server := c.source
	if c.target.server {
		server = c.target
	}
	err := server.each(ctx, `SELECT c.relname, a.attname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
		WHERE c.relnamespace = current_schema()::regnamespace AND a.attidentity <> ''`, func(rows *sql.Rows) error {
		var table, column string
		err := rows.Scan(&table, &column)
		columns[table] = column
		return err
	})
	if err != nil {
		return err
	}
	for _, t := range c.plan {
		column := columns[t.name]
		if column == "" {
			continue
		}
		last, err := c.source.lastNumber(ctx, t.name, column)
		if err == nil {
			err = c.target.setLastNumber(ctx, t.name, column, last)
		}
		if err != nil {
			return fmt.Errorf("the numbers of %s.%s: %w", t.name, column, err)
		}
	}
	return nil
}

// lastNumber returns the highest number that was given; 0 = none.
func (s *side) lastNumber(ctx context.Context, table, column string) (last int64, err error) {
	err = s.conn.QueryRowContext(ctx, `SELECT coalesce(max(`+quote(column)+`), 0) FROM `+quote(table)).Scan(&last)
	if err != nil {
		return 0, err
	}
	var given int64
	if s.server {
		var name string
		if err := s.conn.QueryRowContext(ctx, `SELECT pg_get_serial_sequence(quote_ident($1), $2)`, table, column).Scan(&name); err != nil {
			return 0, err
		}
		err = s.conn.QueryRowContext(ctx, `SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM `+name).Scan(&given) // quoted by the server
	} else {
		err = s.conn.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?`, table).Scan(&given)
	}
	return max(last, given), err
}

func (s *side) setLastNumber(ctx context.Context, table, column string, last int64) error {
	if s.server {
		_, err := s.conn.ExecContext(ctx, `SELECT setval(pg_get_serial_sequence(quote_ident($1), $2), greatest($3::bigint, 1),
			$3::bigint > 0)`, table, column, last)
		return err
	}
	// Only a table with AUTOINCREMENT keeps the last number; the others go on after the highest one.
	return s.within(ctx, func(tx *sql.Tx) error {
		var keeps bool
		err := tx.QueryRowContext(ctx, `SELECT sql LIKE '%AUTOINCREMENT%' FROM sqlite_schema WHERE type = 'table' AND name = ?`, table).
			Scan(&keeps)
		if err != nil || !keeps {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM sqlite_sequence WHERE name = ?`, table); err != nil || last == 0 {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)`, table, last)
		return err
	})
}
