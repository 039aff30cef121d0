package resource

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/tool"
)

// databaseError is an error of the database. Models read only what is about their values: other texts may
// name addresses.
type databaseError struct {
	text  string
	cause error
}

func (e *databaseError) Error() string   { return e.text }
func (e *databaseError) Unwrap() []error { return []error{e.cause, errDefinite} }

// failure returns the error of a statement that had no effect.
func failure(err error) error {
	if isAboutValues(err) {
		return &databaseError{err.Error(), err}
	}
	return &databaseError{"the database cannot execute it at the moment", err}
}

// isAboutValues reports whether the database refuses the values: by a constraint, because they are none of the
// column's type, or because the type has no such comparison.
func isAboutValues(err error) bool {
	var standard interface{ SQLState() string }
	if errors.As(err, &standard) {
		state := standard.SQLState()
		return len(state) == 5 && slices.Contains([]string{"22", "23", "42"}, state[:2])
	}
	var ofSQLite interface{ Code() int }
	if errors.As(err, &ofSQLite) {
		const constraint, mismatch = 19, 20 // primary result codes of SQLite
		code := ofSQLite.Code() & 0xff
		return code == constraint || code == mismatch
	}
	return false
}

// keyOf reads the key of a row from arguments, and what update is to set.
func (t *table) keyOf(arguments json.RawMessage, update bool) (values []any, set map[string]json.RawMessage, err error) {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(arguments, &members); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	for _, c := range t.key {
		raw, ok := members[c.name]
		if !ok {
			return nil, nil, fmt.Errorf("%w: %q is missing", ErrInvalid, c.name)
		}
		v, err := c.kind.parse(c.name, raw)
		if err != nil {
			return nil, nil, err
		}
		values = append(values, v)
		delete(members, c.name)
	}
	if update {
		if err := json.Unmarshal(members[t.setName()], &set); err != nil || len(set) == 0 {
			return nil, nil, fmt.Errorf("%w: %s is an object with the columns to change", ErrInvalid, t.setName())
		}
		delete(members, t.setName())
	}
	for name := range members {
		return nil, nil, fmt.Errorf("%w: unknown member %q", ErrInvalid, name)
	}
	return values, set, nil
}

// byKey adds the conditions of a key.
func (t *table) byKey(s *statement, values []any) {
	for i, c := range t.key {
		s.add(" AND ", of(c.name), " = ", s.parameter(values[i]))
	}
}

// get is the verb.
func (t *table) get(ctx context.Context, arguments json.RawMessage) (json.RawMessage, error) {
	values, _, err := t.keyOf(arguments, false)
	if err != nil {
		return nil, err
	}
	s, has := t.selects(t.visible, tool.From(ctx).Caller)
	if !has {
		return nil, t.missing()
	}
	t.byKey(s, values)
	s.add(" LIMIT 2")
	rows, err := t.db.QueryContext(ctx, s.text.String(), s.args...)
	if err != nil {
		return nil, failure(err)
	}
	defer rows.Close()
	out, n, err := readAll(ctx, rows, t.visible)
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, t.missing()
	case n > 1:
		return nil, t.several()
	}
	return out, nil
}

func (t *table) missing() error {
	return fmt.Errorf("%w: no row of %s has this key", ErrNotFound, t.name)
}

func (t *table) several() error {
	return fmt.Errorf("several rows of %s have this key; nothing was changed", t.name)
}

// readAll reads all rows, and returns the first.
func readAll(ctx context.Context, rows *sql.Rows, columns []column) (first json.RawMessage, n int, err error) {
	r := newReader(ctx, columns)
	for rows.Next() {
		if n++; n > 1 {
			continue
		}
		if first, err = r.append(nil, rows); err != nil {
			return nil, n, err
		}
		if len(first) > maxBytes {
			return nil, n, fmt.Errorf("%w: the row is larger than %d bytes; search with fewer columns", ErrInvalid, maxBytes)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, n, failure(err)
	}
	return first, n, nil
}

// columnsOf reads the values of columns. The columns that may be set are may.
func columnsOf(members map[string]json.RawMessage, may []column) (columns []column, values []any, err error) {
	for _, c := range may {
		raw, ok := members[c.name]
		if !ok {
			continue
		}
		v, err := c.parse(raw)
		if err != nil {
			return nil, nil, err
		}
		columns, values = append(columns, c), append(values, v)
		delete(members, c.name)
	}
	for name := range members {
		return nil, nil, fmt.Errorf("%w: unknown column %q, or one that cannot be set; there are %s", ErrInvalid, name, listed(may))
	}
	return columns, values, nil
}

// create is the verb.
func (t *table) create(ctx context.Context, arguments json.RawMessage) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(arguments, &members); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	columns, values, err := columnsOf(members, t.creates)
	if err != nil {
		return nil, err
	}
	call := tool.From(ctx)
	for _, name := range t.filters {
		value := t.o.Rows[name](call.Caller)
		if value == nil {
			return nil, fmt.Errorf("%w: the caller has no rows of %s", ErrInvalid, t.name)
		}
		columns, values = append(columns, column{name: name}), append(values, value)
	}
	once := t.o.CallKey != "" && call.IdempotencyKey != ""
	if once {
		columns, values = append(columns, column{name: t.o.CallKey}), append(values, call.IdempotencyKey)
	}
	s := t.insert(columns, values, once)
	return t.write(ctx, func(tx *sql.Tx) (json.RawMessage, error) {
		out, n, err := t.returned(ctx, tx, s)
		if err != nil || n > 0 || !once {
			return out, err
		}
		return t.earlier(ctx, tx, call)
	})
}

// insert returns the statement of a create.
func (t *table) insert(columns []column, values []any, once bool) *statement {
	s := &statement{dialect: t.dialect}
	s.add("INSERT INTO ", t.quoted, " AS t")
	if len(columns) == 0 {
		s.add(" DEFAULT VALUES")
	}
	for i, c := range columns {
		if i == 0 {
			s.add(" (")
		} else {
			s.add(", ")
		}
		s.add(quote(c.name))
	}
	for i, v := range values {
		if i == 0 {
			s.add(") VALUES (")
		} else {
			s.add(", ")
		}
		s.add(s.parameter(v))
	}
	if len(columns) > 0 {
		s.add(")")
	}
	if once {
		s.add(" ON CONFLICT (", quote(t.o.CallKey), ") DO NOTHING")
	}
	t.returning(s)
	return s
}

// returning makes the statement return the keys of its rows.
func (t *table) returning(s *statement) {
	s.add(" RETURNING ")
	if len(t.key) == 0 {
		s.add("1")
	}
	for i, c := range t.key {
		if i > 0 {
			s.add(", ")
		}
		s.add(t.dialect.selected(c, quote(c.name)))
	}
}

// earlier returns the key of the row that an earlier attempt of the call has created.
func (t *table) earlier(ctx context.Context, tx *sql.Tx, call tool.Call) (json.RawMessage, error) {
	s, _ := t.selects(t.key, call.Caller)
	s.add(" AND ", of(t.o.CallKey), " = ", s.parameter(call.IdempotencyKey))
	out, n, err := t.returned(ctx, tx, s)
	if err == nil && n == 0 {
		return nil, fmt.Errorf("%w: a row with the idempotency key of this call belongs to somebody else", errDefinite)
	}
	return out, err
}

// returned executes a statement, and returns the key of its first row, and how many it has.
func (t *table) returned(ctx context.Context, tx *sql.Tx, s *statement) (json.RawMessage, int, error) {
	rows, err := tx.QueryContext(ctx, s.text.String(), s.args...)
	if err != nil {
		return nil, 0, failure(err)
	}
	defer rows.Close()
	if len(t.key) > 0 {
		return readAll(ctx, rows, t.key)
	}
	n := 0
	for ; rows.Next(); n++ {
		continue
	}
	if err := rows.Err(); err != nil {
		return nil, n, failure(err)
	}
	return json.RawMessage(`{"done":true}`), n, nil
}

// update is the verb.
func (t *table) update(ctx context.Context, arguments json.RawMessage) (json.RawMessage, error) {
	key, set, err := t.keyOf(arguments, true)
	if err != nil {
		return nil, err
	}
	columns, values, err := columnsOf(set, t.updates)
	if err != nil {
		return nil, err
	}
	s := &statement{dialect: t.dialect}
	s.add("UPDATE ", t.quoted, " AS t SET ")
	for i, c := range columns {
		if i > 0 {
			s.add(", ")
		}
		s.add(quote(c.name), " = ", s.parameter(values[i]))
	}
	return t.change(ctx, s, key)
}

// remove is the verb Delete.
func (t *table) remove(ctx context.Context, arguments json.RawMessage) (json.RawMessage, error) {
	key, _, err := t.keyOf(arguments, false)
	if err != nil {
		return nil, err
	}
	s := &statement{dialect: t.dialect}
	s.add("DELETE FROM ", t.quoted, " AS t")
	return t.change(ctx, s, key)
}

// change executes a statement on the one row of the caller with the key.
func (t *table) change(ctx context.Context, s *statement, key []any) (json.RawMessage, error) {
	s.add(" WHERE 1 = 1")
	if !t.filter(s, tool.From(ctx).Caller) {
		return nil, t.missing()
	}
	t.byKey(s, key)
	t.returning(s)
	return t.write(ctx, func(tx *sql.Tx) (json.RawMessage, error) {
		out, n, err := t.returned(ctx, tx, s)
		switch {
		case err != nil:
			return nil, err
		case n == 0:
			return nil, t.missing()
		case n > 1:
			return nil, fmt.Errorf("%w: %w", t.several(), errDefinite)
		}
		return out, nil
	})
}

// write executes f in a transaction, which commits if f succeeds. Until then nothing has an effect; when the answer to
// the commit is lost, nobody knows.
func (t *table) write(ctx context.Context, f func(*sql.Tx) (json.RawMessage, error)) (json.RawMessage, error) {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, failure(err)
	}
	out, err := f(tx)
	if err != nil {
		_ = tx.Rollback() // without it, the database does so when the connection closes
		return nil, err
	}
	if err := tx.Commit(); err != nil {
		if isAboutValues(err) { // a deferred constraint
			return nil, failure(err)
		}
		return nil, &lostError{err}
	}
	return out, nil
}
