package resource

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/tool"
)

// The bounds of a table.
const (
	MaxRows     = 1000             // of one search, whatever its caller asks for
	defaultRows = 50               // of a search that says nothing
	maxBytes    = 1 << 20          // of the rows of one result, as JSON
	defaultTime = 10 * time.Second // of a call
	maxColumns  = 256
)

// TableOptions says what callers may do with a table. The zero value lets them read all columns of all rows.
type TableOptions struct {
	Name   string // of the resource; "" = that of the table
	Schema string // of the database that the table is in; "" = the one that the database uses by itself

	// Verbs are those that callers may use; nil = Get and Search.
	Verbs []Verb

	// Columns are those that callers see, in searches and results; nil = all.
	Columns []string

	// Writable are those of Columns that Create and Update set; nil = all of them but those of Rows, those that
	// the database computes, and, for Update, those of Key.
	Writable []string

	// Key identifies a row; nil = the primary key of the table. Get, Update and Delete need one. If a change
	// would meet several rows, it is undone and fails.
	Key []string

	// Rows limits each caller to some rows: those in which each of these columns has the value that the function
	// returns for the caller. Rows that the caller creates get it, and no caller can change it. A caller for whom
	// it returns nil has no rows. Use every part of the caller that distinguishes: in a gateway with several
	// orgs, two keys of different orgs may have the same ID. Nil = all rows.
	Rows map[string]func(tool.Caller) any

	// CallKey is a column of text with a unique index of its own, for the idempotency keys of creates: a create whose
	// answer was lost can then be repeated, and makes one row. "" = a create is executed at most once.
	CallKey string

	// Timeout of a call; 0 = 10 seconds.
	Timeout time.Duration
}

// Table returns a resource over a table of SQLite or PostgreSQL, through whatever driver db has. It reads what columns
// the table has, with one or two queries; columns that are added later are not seen. It returns an error for a table,
// a column or a verb that does not exist.
//
// A search has a condition for each column, by the type of the column, and all of them must hold:
//
//	{"where": {"price": {"lt": 500}, "name": {"contains": "tea"}}, "order_by": "price", "limit": 20}
//
// It returns {"rows": […], "more": true} with at most 1,000 rows and 1 MiB. Get, Update and Delete take the columns of
// the key; Update takes the columns to change as set. Update and Create return the key. Names come from the database
// and are quoted; values are parameters only. A call that meets a lock of SQLite waits as long as the busy_timeout of
// the connections says; without one it fails.
func Table(ctx context.Context, db *sql.DB, name string, o TableOptions) (*Resource, error) {
	t := &table{db: db, name: name, o: o, timeout: cmp.Or(o.Timeout, defaultTime)}
	r, err := empty(cmp.Or(o.Name, name))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	if err := t.load(ctx); err != nil {
		return nil, fmt.Errorf("table %s: %w", name, err)
	}
	verbs := o.Verbs
	if verbs == nil {
		verbs = []Verb{Get, Search}
		if len(t.key) == 0 {
			verbs = verbs[1:]
		}
	}
	for _, which := range verbs {
		v, err := t.verb(which)
		if err != nil {
			return nil, fmt.Errorf("table %s: %w", name, err)
		}
		r.add(v)
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	return r, nil
}

// table is a table as callers may use it.
type table struct {
	db      *sql.DB
	name    string
	o       TableOptions
	timeout time.Duration

	dialect dialect
	quoted  string   // its name in statements
	all     []column // of the table
	visible []column
	creates []column // that Create sets
	updates []column // that Update sets
	key     []column
	filters []string // columns of o.Rows, sorted
}

// column is a column of a table.
type column struct {
	name      string
	kind      kind
	required  bool // a new row must have a value
	generated bool // the database computes it
	nullable  bool
	primary   int // place in the primary key, from 1; 0 = none
}

// load reads what columns the table has, and checks the options.
func (t *table) load(ctx context.Context) (err error) {
	if t.db == nil {
		return errors.New("the database is nil")
	}
	if t.timeout < 0 {
		return fmt.Errorf("option Timeout is %v; use 0 or more", t.timeout)
	}
	if t.dialect, err = dialectOf(ctx, t.db); err != nil {
		return err
	}
	t.quoted = quote(t.name)
	if t.o.Schema != "" {
		t.quoted = quote(t.o.Schema) + "." + t.quoted
	}
	if t.all, err = t.dialect.columns(ctx, t.db, t.o.Schema, t.name); err != nil {
		return fmt.Errorf("its columns cannot be read: %w", err)
	}
	switch {
	case len(t.all) == 0:
		return errors.New("the database has no such table; see Schema for those of another schema")
	case len(t.all) > maxColumns:
		return fmt.Errorf("it has %d columns, more than %d", len(t.all), maxColumns)
	}
	t.filters = slices.Sorted(maps.Keys(t.o.Rows))
	for _, f := range t.filters {
		if t.o.Rows[f] == nil {
			return fmt.Errorf("option Rows has no function for the column %q", f)
		}
	}
	if _, err := t.pick("Rows", t.filters); err != nil {
		return err
	}
	if t.visible, err = t.pick("Columns", t.o.Columns); err != nil {
		return err
	}
	if len(t.visible) == 0 {
		return errors.New("callers see none of its columns; see Columns")
	}
	if err := t.loadKey(); err != nil {
		return err
	}
	if err := t.loadWritable(); err != nil {
		return err
	}
	return t.checkCallKey(ctx)
}

// pick returns the columns of the names, or all for nil.
func (t *table) pick(option string, names []string) ([]column, error) {
	if names == nil {
		return slices.DeleteFunc(slices.Clone(t.all), func(c column) bool { return c.name == t.o.CallKey }), nil
	}
	var out []column
	for _, n := range names {
		c, ok := find(t.all, n)
		if !ok {
			return nil, fmt.Errorf("%s names the column %q, and the table has %s", option, n, listed(t.all))
		}
		if _, twice := find(out, n); twice {
			return nil, fmt.Errorf("%s names the column %q twice", option, n)
		}
		out = append(out, c)
	}
	return out, nil
}

func find(columns []column, name string) (column, bool) {
	i := slices.IndexFunc(columns, func(c column) bool { return c.name == name })
	if i < 0 {
		return column{}, false
	}
	return columns[i], true
}

// listed returns the names of columns for an error.
func listed(columns []column) string {
	var names []string
	for _, c := range columns {
		names = append(names, c.name)
	}
	return "the columns " + strings.Join(names, ", ")
}

func (t *table) loadKey() (err error) {
	names := t.o.Key
	if names == nil {
		for place := 1; ; place++ {
			i := slices.IndexFunc(t.all, func(c column) bool { return c.primary == place })
			if i < 0 {
				break
			}
			names = append(names, t.all[i].name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	if t.key, err = t.pick("Key", names); err != nil {
		return err
	}
	for _, c := range t.key {
		if _, ok := find(t.visible, c.name); !ok {
			return fmt.Errorf("the column %q is of the key, and Columns does not name it", c.name)
		}
		if c.kind == document {
			return fmt.Errorf("the column %q has JSON values, which are no key", c.name)
		}
	}
	return nil
}

func (t *table) loadWritable() error {
	fixed := func(c column) string {
		switch {
		case t.o.Rows[c.name] != nil:
			return "the caller determines it (Rows)"
		case c.generated:
			return "the database computes it"
		case c.name == t.o.CallKey:
			return "it is CallKey"
		}
		return ""
	}
	from := t.visible
	if t.o.Writable != nil {
		var err error
		if from, err = t.pick("Writable", t.o.Writable); err != nil {
			return err
		}
	}
	for _, c := range from {
		why := fixed(c)
		if _, ok := find(t.visible, c.name); !ok && why == "" {
			why = "Columns does not name it"
		}
		if why != "" && t.o.Writable != nil {
			return fmt.Errorf("option Writable names the column %q: %s", c.name, why)
		}
		if why != "" {
			continue
		}
		t.creates = append(t.creates, c)
		if _, isKey := find(t.key, c.name); !isKey {
			t.updates = append(t.updates, c)
		}
	}
	return nil
}

// checkCallKey makes the database plan a statement that needs a unique index on the column.
func (t *table) checkCallKey(ctx context.Context) error {
	if t.o.CallKey == "" {
		return nil
	}
	c, ok := find(t.all, t.o.CallKey)
	switch {
	case !ok:
		return fmt.Errorf("CallKey names the column %q, and the table has %s", t.o.CallKey, listed(t.all))
	case c.kind != text:
		return fmt.Errorf("the column %q of CallKey is not a text", t.o.CallKey)
	case len(t.key) == 0:
		return errors.New("CallKey needs a key of the table, see Key")
	}
	name := quote(t.o.CallKey)
	plan := fmt.Sprintf("EXPLAIN INSERT INTO %s (%s) VALUES (%s) ON CONFLICT (%s) DO NOTHING",
		t.quoted, name, t.dialect.parameter(1), name)
	rows, err := t.db.QueryContext(ctx, plan, "")
	if err != nil {
		return fmt.Errorf("the column %q of CallKey needs a unique index of its own: %w", t.o.CallKey, err)
	}
	defer rows.Close()
	return rows.Err()
}

// verb returns the tool of a verb.
func (t *table) verb(which Verb) (*verb, error) {
	v := &verb{verb: which, class: tool.Once, def: tool.Definition{Annotations: annotations(which)}}
	v.def.Annotations.OpenWorld = new(false)
	var schema any
	var f func(context.Context, json.RawMessage) (json.RawMessage, error)
	if len(t.key) == 0 && slices.Contains([]Verb{Get, Update, Delete}, which) {
		return nil, fmt.Errorf("%s needs a key, and the table has no primary key; see Key", which)
	}
	switch which {
	case Get:
		v.class, v.def.Description = tool.Read, fmt.Sprintf("Get one row of %s by its key.", t.name)
		schema, f = t.keySchema(nil), t.get
	case Search:
		v.class, v.def.Description = tool.Read, fmt.Sprintf(
			"Search the rows of %s. All conditions must hold. more is true if there are further rows: use offset.", t.name)
		schema, f = t.searchSchema(), t.search
	case Create:
		if t.o.CallKey != "" {
			v.class = tool.Keyed
		}
		for _, c := range t.all {
			if _, ok := find(t.creates, c.name); ok || !c.required || t.o.Rows[c.name] != nil || c.name == t.o.CallKey {
				continue
			}
			return nil, fmt.Errorf("create cannot set the column %q, and a new row needs a value for it", c.name)
		}
		v.def.Description = fmt.Sprintf("Create a row of %s. The result has its key.", t.name)
		schema, f = object(t.creates, func(c column) bool { return c.required }), t.create
	case Update:
		if len(t.updates) == 0 {
			return nil, errors.New("update has no column to set")
		}
		v.def.Description = fmt.Sprintf("Change the columns in set of one row of %s.", t.name)
		set := object(t.updates, func(column) bool { return false })
		set["minProperties"] = 1
		schema, f = t.keySchema(set), t.update
	case Delete:
		v.def.Description = fmt.Sprintf("Delete one row of %s by its key.", t.name)
		schema, f = t.keySchema(nil), t.remove
	default:
		return nil, fmt.Errorf("Verbs names %q; a table has get, search, create, update, delete", which)
	}
	var err error
	v.def.InputSchema, err = json.Marshal(schema)
	v.call = func(ctx context.Context, arguments json.RawMessage) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, t.timeout)
		defer cancel()
		return f(ctx, arguments)
	}
	return v, err
}

// object returns the schema of an object with columns.
func object(columns []column, required func(column) bool) map[string]any {
	properties, must := map[string]any{}, []string{}
	for _, c := range columns {
		properties[c.name] = c.schema()
		if required(c) {
			must = append(must, c.name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": must, "additionalProperties": false}
}

// keySchema returns the schema of arguments with a key, and with set unless it is nil.
func (t *table) keySchema(set map[string]any) map[string]any {
	o := object(t.key, func(column) bool { return true })
	for _, c := range t.key {
		o["properties"].(map[string]any)[c.name] = c.kind.schema()
	}
	if set != nil {
		o["properties"].(map[string]any)[t.setName()] = set
		o["required"] = append(o["required"].([]string), t.setName())
	}
	return o
}

// setName is the member of update's arguments with the columns to set. A column of the key may have its name.
func (t *table) setName() string {
	name := "set"
	for {
		if _, taken := find(t.key, name); !taken {
			return name
		}
		name += "_"
	}
}
