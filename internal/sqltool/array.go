package sqltool

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
)

// listsToArrays gives the parameters of a statement of PostgreSQL that are lists the text of an array, where the database
// says that the type of the parameter is one. For other types, such as jsonb, a list stays JSON.
func listsToArrays(ctx context.Context, conn *pgconn.PgConn, statement string, parameters []column) error {
	if !slices.ContainsFunc(parameters, func(c column) bool { return c.list != nil }) {
		return nil
	}
	d, err := conn.Prepare(ctx, "", statement, nil)
	if err != nil {
		return err
	}
	for i, c := range parameters { // 114 and 3802 are json and jsonb
		if c.list == nil || i >= len(d.ParamOIDs) {
			continue
		}
		found, err := query(ctx, conn, `SELECT t.typelem OPERATOR(pg_catalog.=) ANY ('{114,3802}'::pg_catalog.oid[])
			FROM pg_catalog.pg_type t WHERE t.oid OPERATOR(pg_catalog.=) $1::pg_catalog.oid AND t.typcategory OPERATOR(pg_catalog.=) 'A'`,
			strconv.FormatUint(uint64(d.ParamOIDs[i]), 10))
		if err != nil {
			return err
		}
		if len(found) == 0 {
			continue
		}
		text, err := appendArray(nil, c.list, found[0][0] == "t")
		if err != nil {
			return &refusedError{"the list for " + c.name + " cannot be written: " + err.Error()}
		}
		parameters[i].value = new(string(text))
	}
	return nil
}

// appendArray appends a JSON list as the text of an array. Lists in it are its further dimensions, unless it is an array of
// JSON.
func appendArray(dst []byte, list json.RawMessage, ofJSON bool) ([]byte, error) {
	dst = append(dst, '{')
	for i, v := range jsonscan.Elements(list) {
		if i > 0 {
			dst = append(dst, ',')
		}
		v = jsonscan.TrimSpace(v)
		var err error
		switch {
		case jsonscan.IsNull(v):
			dst = append(dst, "NULL"...)
		case ofJSON, jsonscan.IsKind(v, '{'):
			dst = appendElement(dst, string(v))
		case jsonscan.IsKind(v, '['):
			dst, err = appendArray(dst, v, false)
		case jsonscan.IsKind(v, '"'):
			text := jsonscan.Text(v)
			if strings.Contains(text, "\x00") {
				err = errors.New("a text has a character NUL")
			}
			dst = appendElement(dst, text)
		default:
			dst = append(dst, v...)
		}
		if err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// appendElement appends a text in quotes, so that it is neither NULL nor a delimiter.
func appendElement(dst []byte, text string) []byte {
	dst = append(dst, '"')
	dst = append(dst, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text)...)
	return append(dst, '"')
}
