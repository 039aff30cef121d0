package sqltool

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxCharacters is how many characters an answer of database_query has at most.
const maxCharacters = 50_000

// maxCell is how many characters of a value are kept.
const maxCell = 10_000

// rows are the rows of an answer. They are cut while they are read.
type rows struct {
	text  strings.Builder
	size  int // in characters
	count int
	full  bool // no more rows are kept
}

// tail is how many characters the end of an answer needs.
const tail = 200

// newRows returns an answer with the names of the columns.
func newRows(columns []string) (*rows, error) {
	names, err := json.Marshal(columns)
	if err != nil {
		return nil, err
	}
	r := &rows{}
	r.write(`{"columns":` + string(names) + `,"rows":[`)
	if r.size > maxCharacters/2 {
		return nil, errors.New("the names of the columns are too long; select fewer columns")
	}
	return r, nil
}

func (r *rows) write(s string) {
	r.text.WriteString(s)
	r.size += utf8.RuneCountInString(s)
}

// add adds a row of JSON values; false = it does not fit, and no more rows are taken.
func (r *rows) add(values []string) bool {
	row := "[" + strings.Join(values, ",") + "]"
	if r.count > 0 {
		row = "," + row
	}
	if r.full || r.size+utf8.RuneCountInString(row) > maxCharacters-tail {
		r.full = true
		return false
	}
	r.write(row)
	r.count++
	return true
}

// end returns the answer.
func (r *rows) end() (string, error) {
	if r.full && r.count == 0 {
		return "", &refusedError{fmt.Sprintf("a row is longer than %d characters; select fewer columns, or shorter ones with left(column, 1000) or substr(column, 1, 1000)", maxCharacters)}
	}
	note := ""
	if r.full {
		note = fmt.Sprintf(`,"note":"only the first %d rows fit into %d characters; add LIMIT, a condition or an aggregate"`, r.count, maxCharacters)
	}
	r.write(fmt.Sprintf(`],"row_count":%d,"truncated":%t%s}`, r.count, r.full, note))
	return r.text.String(), nil
}

// jsonText returns a text as a JSON value, cut to maxCell characters.
func jsonText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if utf8.RuneCountInString(s) > maxCell {
		count := 0
		for i := range s {
			if count == maxCell {
				s = fmt.Sprintf("%s… [cut: the value has %d characters]", s[:i], utf8.RuneCountInString(s))
				break
			}
			count++
		}
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string has JSON
	return strings.TrimSuffix(b.String(), "\n")
}
