package database

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// The statements of this package are in a form that SQLite takes. Translate makes of them what PostgreSQL takes:
//
//	?, ?2            $1, $2
//	INDEXED BY x     nothing: the planner has statistics
//	_rowid_          ctid, the place of a row, for statements that delete some rows (rowid is a column: the order of rows)
//	CAST(? AS TEXT)  CAST($1 AS bytea): bodies are texts in a file and bytes on a server, which does not look into them
//	CROSS JOIN t ON  JOIN t ON: SQLite does not change the order of the tables
//	x''              CAST('' AS bytea)
//
// All else is written so that both take it, or is a function that the schema of the server has (min, max and instr of values,
// json_each, json_extract, json_array_length).
type translated struct {
	driver.Connector
	*translator
}

// Translated returns a connector whose connections translate the statements of this package for PostgreSQL. Flags are bound as
// numbers, as they are stored. c is one of package stdlib of pgx.
func Translated(c driver.Connector) driver.Connector { return translated{c, newTranslator()} }

// Connect implements driver.Connector.
func (c translated) Connect(ctx context.Context) (driver.Conn, error) {
	inner, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &translatedConn{inner.(serverConn), c.translator}, nil
}

// serverConn is what a connection of pgx is.
type serverConn interface {
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
}

type translatedConn struct {
	serverConn
	*translator
}

// BeginTx implements driver.ConnBeginTx. The statements of a transaction that only reads see the same state, as those on a file do.
func (c *translatedConn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if o.ReadOnly {
		o.Isolation = driver.IsolationLevel(sql.LevelRepeatableRead)
	}
	return c.serverConn.BeginTx(ctx, o)
}

func (c *translatedConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	return c.serverConn.PrepareContext(ctx, c.translate(text))
}

func (c *translatedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	return c.serverConn.ExecContext(ctx, c.translate(text), args)
}

func (c *translatedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	return c.serverConn.QueryContext(ctx, c.translate(text), args)
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c *translatedConn) CheckNamedValue(v *driver.NamedValue) error {
	if is, ok := v.Value.(bool); ok {
		v.Value = int64(0)
		if is {
			v.Value = int64(1)
		}
	}
	return nil
}

// translator makes statements of PostgreSQL of those of this package.
type translator struct {
	spelled *strings.Replacer
	inOrder *regexp.Regexp // a table that is joined in the order of the statement
	known   sync.Map       // from a statement of this package to that of the server; there are some hundreds
}

func newTranslator() *translator {
	return &translator{
		spelled: strings.NewReplacer("_rowid_", "ctid", "AS TEXT)", "AS bytea)", "x''", "CAST('' AS bytea)"),
		inOrder: regexp.MustCompile(`CROSS JOIN (\w+(?: AS)?(?: \w+)? ON )`),
	}
}

func (t *translator) translate(text string) string {
	if known, ok := t.known.Load(text); ok {
		return known.(string)
	}
	out := number(t.spelled.Replace(t.inOrder.ReplaceAllString(text, "JOIN $1")))
	t.known.Store(text, out)
	return out
}

// number returns a statement with the numbers of its parameters, and without the indexes that it names.
func number(text string) string {
	var b strings.Builder
	next := 1
	for part, quoted := range quotes(text) {
		if quoted {
			b.WriteString(part)
			continue
		}
		for {
			before, after, found := strings.Cut(part, "INDEXED BY ")
			if !found {
				break
			}
			_, rest, _ := strings.Cut(after, " ")
			if i := strings.IndexAny(after, " \t\n)"); i >= 0 {
				rest = after[i:]
			}
			part = before + rest
		}
		for {
			before, after, found := strings.Cut(part, "?")
			b.WriteString(before)
			if !found {
				break
			}
			digits := len(after) - len(strings.TrimLeft(after, "0123456789"))
			number := after[:digits]
			if digits == 0 {
				number = strconv.Itoa(next)
				next++
			}
			b.WriteString("$" + number)
			part = after[digits:]
		}
	}
	return b.String()
}

// quotes returns the parts of a statement, and whether each is a text in quotes.
func quotes(text string) func(yield func(string, bool) bool) {
	return func(yield func(string, bool) bool) {
		for i, part := range strings.Split(text, "'") {
			quoted := i%2 == 1
			if quoted {
				part = "'" + part + "'"
			}
			if !yield(part, quoted) {
				return
			}
		}
	}
}
