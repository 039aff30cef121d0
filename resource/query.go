package resource

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/tool"
)

// The bounds of a search.
const (
	maxConditions = 64
	maxIn         = 100 // values of in
	maxOffset     = 1_000_000
)

// query is what a search asks for.
type query struct {
	where  []condition
	order  column // no name = by the key
	down   bool
	show   []column
	limit  int
	offset int
}

// condition is a comparison of a column.
type condition struct {
	column   column
	operator string
	values   []any // of in several, of null none, otherwise one
	is       bool  // of null
}

// searchSchema returns the schema of the arguments of a search.
func (t *table) searchSchema() map[string]any {
	where, names := map[string]any{}, []any{}
	sortable := []any{}
	for _, c := range t.visible {
		operators := map[string]any{}
		for _, o := range c.kind.operators() {
			operators[o] = c.kind.schema()
		}
		operators["null"] = map[string]any{"type": "boolean"}
		if _, ok := operators["in"]; ok {
			operators["in"] = map[string]any{"type": "array", "items": c.kind.schema(), "minItems": 1, "maxItems": maxIn}
		}
		where[c.name] = map[string]any{
			"type": "object", "properties": operators, "additionalProperties": false, "minProperties": 1,
		}
		names = append(names, c.name)
		if c.kind.isSortable() {
			sortable = append(sortable, c.name)
		}
	}
	properties := map[string]any{
		"where": map[string]any{
			"type": "object", "properties": where, "additionalProperties": false,
			"description": "Conditions by column; contains and starts_with ignore the case.",
		},
		"columns": map[string]any{
			"type": "array", "items": map[string]any{"type": "string", "enum": names}, "minItems": 1,
			"description": "The columns of the result; all if left out.",
		},
		"limit": map[string]any{
			"type": "integer", "minimum": 1, "maximum": MaxRows, "description": fmt.Sprintf("Default %d.", defaultRows),
		},
		"offset": map[string]any{"type": "integer", "minimum": 0, "maximum": maxOffset},
	}
	if len(sortable) > 0 {
		properties["order_by"] = map[string]any{"type": "string", "enum": sortable}
		properties["descending"] = map[string]any{"type": "boolean"}
	}
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}

// isSortable reports whether rows can be ordered by a column of the kind.
func (k kind) isSortable() bool { return k != document && k != binary }

// decode reads the arguments of a search. What the schema says is checked again: a program may call
// tools without validation.
func (t *table) decode(arguments json.RawMessage) (query, error) {
	var in struct {
		Where      map[string]map[string]json.RawMessage `json:"where"`
		OrderBy    string                                `json:"order_by"`
		Descending bool                                  `json:"descending"`
		Columns    []string                              `json:"columns"`
		Limit      *int                                  `json:"limit"`
		Offset     int                                   `json:"offset"`
	}
	if err := decodeStrictly(arguments, &in); err != nil {
		return query{}, err
	}
	q := query{down: in.Descending, show: t.visible, limit: defaultRows, offset: in.Offset}
	if in.Limit != nil {
		q.limit = *in.Limit
	}
	if q.limit < 1 || q.limit > MaxRows || q.offset < 0 || q.offset > maxOffset {
		return query{}, fmt.Errorf("%w: limit is 1 to %d, and offset 0 to %d", ErrInvalid, MaxRows, maxOffset)
	}
	var err error
	if in.OrderBy != "" {
		if q.order, err = t.column(in.OrderBy); err != nil {
			return query{}, err
		}
		if !q.order.kind.isSortable() {
			return query{}, fmt.Errorf("%w: rows cannot be ordered by the column %q", ErrInvalid, in.OrderBy)
		}
	}
	if in.Columns != nil {
		q.show = nil
		for _, name := range in.Columns {
			c, err := t.column(name)
			if err != nil {
				return query{}, err
			}
			if _, twice := find(q.show, name); !twice {
				q.show = append(q.show, c)
			}
		}
		if len(q.show) == 0 {
			return query{}, fmt.Errorf("%w: columns is empty", ErrInvalid)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(in.Where)) {
		c, err := t.column(name)
		if err != nil {
			return query{}, err
		}
		for _, operator := range slices.Sorted(maps.Keys(in.Where[name])) {
			one, err := c.condition(operator, in.Where[name][operator])
			if err != nil {
				return query{}, err
			}
			q.where = append(q.where, one)
		}
	}
	if len(q.where) > maxConditions {
		return query{}, fmt.Errorf("%w: %d conditions, more than %d", ErrInvalid, len(q.where), maxConditions)
	}
	return q, nil
}

// decodeStrictly decodes an object, and refuses unknown members.
func decodeStrictly(arguments json.RawMessage, into any) error {
	d := json.NewDecoder(bytes.NewReader(arguments))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// column returns a column that callers see.
func (t *table) column(name string) (column, error) {
	c, ok := find(t.visible, name)
	if !ok {
		return c, fmt.Errorf("%w: unknown column %q; there are %s", ErrInvalid, name, listed(t.visible))
	}
	return c, nil
}

// condition reads a comparison.
func (c column) condition(operator string, raw json.RawMessage) (condition, error) {
	out := condition{column: c, operator: operator}
	if !slices.Contains(c.kind.operators(), operator) {
		return out, fmt.Errorf("%w: unknown comparison %q of the column %q; use %s",
			ErrInvalid, operator, c.name, strings.Join(c.kind.operators(), ", "))
	}
	switch operator {
	case "null":
		if err := json.Unmarshal(raw, &out.is); err != nil || string(raw) == "null" {
			return out, fmt.Errorf("%w: null of the column %q is true or false", ErrInvalid, c.name)
		}
		return out, nil
	case "in":
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil || len(list) == 0 || len(list) > maxIn {
			return out, fmt.Errorf("%w: in of the column %q is a list of 1 to %d values", ErrInvalid, c.name, maxIn)
		}
		for _, one := range list {
			v, err := c.kind.parse(c.name, one)
			if err != nil {
				return out, err
			}
			out.values = append(out.values, v)
		}
		return out, nil
	}
	v, err := c.kind.parse(c.name, raw)
	out.values = []any{v}
	return out, err
}

// statement is SQL with its parameters. Values never get into its text.
type statement struct {
	dialect dialect
	text    strings.Builder
	args    []any
}

func (s *statement) add(parts ...string) {
	for _, p := range parts {
		s.text.WriteString(p)
	}
}

// parameter adds a value, and returns the text that stands for it.
func (s *statement) parameter(value any) string {
	s.args = append(s.args, value)
	return s.dialect.parameter(len(s.args))
}

// where adds a comparison.
func (s *statement) where(c condition) {
	name := of(c.column.name)
	switch c.operator {
	case "null":
		s.add(name, " IS")
		if !c.is {
			s.add(" NOT")
		}
		s.add(" NULL")
	case "in":
		for i, v := range c.values {
			if i == 0 {
				s.add(name, " IN (")
			} else {
				s.add(", ")
			}
			s.add(s.parameter(v))
		}
		s.add(")")
	case "contains":
		s.add(s.dialect.contains(name, s.parameter(c.values[0])))
	case "starts_with":
		s.add(s.dialect.begins(name, s.parameter(c.values[0])))
	default:
		s.add(name, comparisons[c.operator], s.parameter(c.values[0]))
	}
}

var comparisons = map[string]string{"eq": " = ", "ne": " <> ", "lt": " < ", "lte": " <= ", "gt": " > ", "gte": " >= "}

// filter adds the conditions of Rows. It returns false if the caller has no rows.
func (t *table) filter(s *statement, c tool.Caller) bool {
	for _, name := range t.filters {
		value := t.o.Rows[name](c)
		if value == nil {
			return false
		}
		s.add(" AND ", of(name), " = ", s.parameter(value))
	}
	return true
}

// selects returns the beginning of a statement that reads the columns of rows of the caller. It returns false if
// the caller has no rows.
func (t *table) selects(columns []column, c tool.Caller) (*statement, bool) {
	s := &statement{dialect: t.dialect}
	s.add("SELECT ")
	for i, col := range columns {
		if i > 0 {
			s.add(", ")
		}
		s.add(t.dialect.selected(col, of(col.name)))
	}
	s.add(" FROM ", t.quoted, " AS t WHERE 1 = 1")
	return s, t.filter(s, c)
}

// search is the verb.
func (t *table) search(ctx context.Context, arguments json.RawMessage) (json.RawMessage, error) {
	q, err := t.decode(arguments)
	if err != nil {
		return nil, err
	}
	s, has := t.statement(q, tool.From(ctx).Caller)
	if !has {
		return json.RawMessage(`{"rows":[],"more":false}`), nil
	}
	rows, err := t.db.QueryContext(ctx, s.text.String(), s.args...)
	if err != nil {
		return nil, failure(err)
	}
	defer rows.Close()
	out, err := q.read(ctx, rows)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// statement returns the statement of a search.
func (t *table) statement(q query, caller tool.Caller) (*statement, bool) {
	s, has := t.selects(q.show, caller)
	for _, c := range q.where {
		s.add(" AND ")
		s.where(c)
	}
	order := t.key
	if q.order.name != "" {
		order = append([]column{q.order}, t.key...)
	}
	for i, c := range order {
		if i == 0 {
			s.add(" ORDER BY ")
		} else {
			s.add(", ")
		}
		s.add(of(c.name))
		if q.down {
			s.add(" DESC")
		}
	}
	s.add(fmt.Sprintf(" LIMIT %d OFFSET %d", q.limit+1, q.offset))
	return s, has
}

// read returns the rows as the result of the search.
func (q query) read(ctx context.Context, rows *sql.Rows) (json.RawMessage, error) {
	r := newReader(ctx, q.show)
	out := []byte(`{"rows":[`)
	more, n := false, 0
	for ; rows.Next(); n++ {
		if more = n == q.limit; more {
			break
		}
		before := len(out)
		if n > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = r.append(out, rows); err != nil {
			return nil, err
		}
		if len(out) > maxBytes {
			if n == 0 {
				return nil, fmt.Errorf("%w: one row is larger than %d bytes; name fewer columns", ErrInvalid, maxBytes)
			}
			out, more = out[:before], true
			break
		}
	}
	if err := rows.Err(); err != nil {
		return nil, failure(err)
	}
	return fmt.Appendf(out, `],"more":%t}`, more), nil
}

// rowReader reads rows of some columns as JSON, and charges their bytes to the call, whose end releases them.
type rowReader struct {
	columns []column
	values  []any
	into    []any
	memory  tool.Memory
}

func newReader(ctx context.Context, columns []column) *rowReader {
	r := &rowReader{columns: columns, memory: tool.From(ctx).Memory}
	r.values, r.into = make([]any, len(columns)), make([]any, len(columns))
	for i := range r.values {
		r.into[i] = &r.values[i]
	}
	return r
}

// append appends the row that rows is at.
func (r *rowReader) append(b []byte, rows *sql.Rows) ([]byte, error) {
	if err := rows.Scan(r.into...); err != nil {
		return b, failure(err)
	}
	before := len(b)
	for i, c := range r.columns {
		if i == 0 {
			b = append(b, '{')
		} else {
			b = append(b, ',')
		}
		b = append(appendJSON(b, c.name), ':')
		b = c.appendValue(b, r.values[i])
	}
	b = append(b, '}')
	if n := len(b) - before; r.memory != nil {
		if err := r.memory.Acquire(n); err != nil {
			return b, err
		}
	}
	return b, nil
}
