package resource

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"
)

// kind is what the values of a column are, for callers.
type kind int

const (
	text     kind = iota
	integer       // of 64 bits
	number        // of 64 bits, with a fraction
	decimal       // with any number of digits: a JSON number
	boolean       //
	binary        // base64 in a JSON string
	document      // any JSON value
	other         // the text that the database has for the value, such as a time
)

// schema returns the schema of a value that is not NULL.
func (k kind) schema() map[string]any {
	switch k {
	case integer:
		return map[string]any{"type": "integer"}
	case number, decimal:
		return map[string]any{"type": "number"}
	case boolean:
		return map[string]any{"type": "boolean"}
	case binary:
		return map[string]any{"type": "string", "contentEncoding": "base64"}
	case document:
		return map[string]any{}
	case text, other:
	}
	return map[string]any{"type": "string"}
}

// schema returns the schema of a value.
func (c column) schema() map[string]any {
	s := c.kind.schema()
	if t, ok := s["type"]; ok && c.nullable {
		s["type"] = []any{t, "null"}
	}
	return s
}

// operators returns the comparisons that a search may make with the column.
func (k kind) operators() []string {
	switch k {
	case boolean, binary:
		return []string{"eq", "ne", "null"}
	case document:
		return []string{"null"}
	case integer, number, decimal, other:
		return []string{"eq", "ne", "lt", "lte", "gt", "gte", "in", "null"}
	case text:
	}
	return []string{"eq", "ne", "lt", "lte", "gt", "gte", "in", "contains", "starts_with", "null"}
}

// parse returns a value of the column as a parameter of a statement.
func (c column) parse(raw json.RawMessage) (any, error) {
	if string(raw) == "null" {
		if c.kind == document && !c.nullable {
			return "null", nil
		}
		return nil, nil
	}
	return c.kind.parse(c.name, raw)
}

// parse returns a value that is not NULL as a parameter of a statement.
func (k kind) parse(name string, raw json.RawMessage) (any, error) {
	wrong := func(want string) error { return fmt.Errorf("%w: the column %q takes %s", ErrInvalid, name, want) }
	switch k {
	case document:
		var compact bytes.Buffer
		if err := json.Compact(&compact, raw); err != nil {
			return nil, wrong("JSON")
		}
		return compact.String(), nil
	case boolean:
		var b bool
		if err := json.Unmarshal(raw, &b); err != nil || string(raw) == "null" {
			return nil, wrong("true or false")
		}
		return b, nil
	case integer, number, decimal:
		return k.parseNumber(raw, wrong)
	case text, other, binary:
	}
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return nil, wrong("a string")
	}
	if k != binary {
		if i := bytes.IndexByte([]byte(*s), 0); i >= 0 {
			return nil, wrong("a string without the character U+0000")
		}
		return *s, nil
	}
	data, err := base64.StdEncoding.DecodeString(*s)
	if err != nil {
		return nil, wrong("base64")
	}
	return data, nil
}

func (k kind) parseNumber(raw json.RawMessage, wrong func(string) error) (any, error) {
	var n json.Number
	if len(raw) == 0 || raw[0] == '"' || json.Unmarshal(raw, &n) != nil || n == "" {
		return nil, wrong("a number")
	}
	if k == integer {
		if i, err := n.Int64(); err == nil {
			return i, nil
		}
		const exact = 1 << 53 // integers up to here have one float64
		f, err := n.Float64()
		if err != nil || f != math.Trunc(f) || math.Abs(f) > exact {
			return nil, wrong("an integer of 64 bits")
		}
		return int64(f), nil
	}
	f, err := n.Float64()
	if err != nil {
		return nil, wrong("a number of 64 bits")
	}
	if k == decimal {
		return n.String(), nil
	}
	return f, nil
}

// appendValue appends a value that a driver has returned, as JSON.
func (c column) appendValue(b []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case int64:
		if c.kind == boolean {
			return strconv.AppendBool(b, v != 0)
		}
		return strconv.AppendInt(b, v, 10)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return appendJSON(b, strconv.FormatFloat(v, 'g', -1, 64))
		}
		return appendJSON(b, v)
	case time.Time:
		return appendJSON(b, v.Format(time.RFC3339Nano))
	case []byte:
		if c.kind == binary || !utf8.Valid(v) {
			return appendJSON(b, v)
		}
		return c.appendText(b, string(v))
	case string:
		if !utf8.ValidString(v) {
			return appendJSON(b, []byte(v))
		}
		return c.appendText(b, v)
	}
	return appendJSON(b, fmt.Sprint(value))
}

// appendText appends a text: numbers and JSON as what they are.
func (c column) appendText(b []byte, s string) []byte {
	switch c.kind {
	case document:
		var compact bytes.Buffer
		if json.Compact(&compact, []byte(s)) == nil {
			return append(b, compact.Bytes()...)
		}
	case number, decimal:
		if json.Valid([]byte(s)) {
			return append(b, s...)
		}
	case text, integer, boolean, binary, other:
	}
	return appendJSON(b, s)
}

// appendJSON appends the JSON of a string, a finite number or bytes, which always have one.
func appendJSON(b []byte, v any) []byte {
	out, _ := json.Marshal(v)
	return append(b, out...)
}
