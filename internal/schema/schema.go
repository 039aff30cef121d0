// Package schema checks tool arguments against the JSON Schema of a tool. The
// schema comes from a remote server, so it is data to distrust: nothing is ever
// loaded from a reference, its size and depth are bounded, and its patterns run
// on an engine that takes linear time.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// The bounds on a schema, from reference/reliability 4.6.
const (
	MaxBytes = 64 << 10
	MaxDepth = 32
)

// hugeNumber finds numbers such as 1e1000000000, whose exact value would fill
// the memory. It also finds them as a whole string; that costs nobody anything.
var hugeNumber = regexp.MustCompile(`[:\[,\s][-+]?[0-9.]+[eE][-+]?0*[1-9][0-9]{3,}\s*[,}\]]`)

// The bounds on what a validation reports. Who repairs that much asks again.
const (
	maxViolations = 1000
	maxMessage    = 512 // bytes of one; it may quote the value, and all that was allowed
)

// Schema is a compiled schema, safe for concurrent use: validations take turns.
type Schema struct {
	compiled *jsonschema.Schema
	effort   *effort
}

// Violation is one way in which a value does not fit.
type Violation struct {
	Path    string `json:"path"` // JSON pointer; empty for the whole value
	Message string `json:"message"`
}

// Compile reads a schema for arguments. It refuses what is no object or is not
// about one, what is too large or too deep, and every reference that leaves the
// document.
func Compile(raw json.RawMessage) (*Schema, error) {
	trimmed := bytes.Trim(raw, " \t\r\n") // JSON knows no other space
	switch {
	case len(trimmed) == 0:
		return nil, errors.New("missing")
	case trimmed[0] != '{':
		return nil, errors.New("not a JSON object")
	case len(trimmed) > MaxBytes:
		return nil, fmt.Errorf("larger than %d bytes", MaxBytes)
	case depth(trimmed) > MaxDepth:
		return nil, fmt.Errorf("nested deeper than %d levels", MaxDepth)
	case hugeNumber.Match(trimmed):
		return nil, errors.New("holds a number with an exponent of more than three digits")
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(trimmed))
	if err != nil {
		return nil, fmt.Errorf("not valid JSON: %w", err)
	}
	const here = "mem:///schema.json"
	e := &effort{weight: members(doc)}
	c := jsonschema.NewCompiler()
	c.UseLoader(sealed{})
	c.UseRegexpEngine(e.linear)
	if err := c.AddResource(here, doc); err != nil {
		return nil, err
	}
	compiled, err := c.Compile(here)
	if err != nil {
		return nil, fmt.Errorf("not a usable JSON Schema: %s", oneLine(err))
	}
	if types, ok := doc.(map[string]any)["type"]; ok && types != "object" {
		return nil, fmt.Errorf("for a %v, and arguments are an object", types)
	}
	if err := e.meter(compiled, here); err != nil {
		return nil, fmt.Errorf("not a usable JSON Schema: %w", err)
	}
	return &Schema{compiled, e}, nil
}

// Validate returns the violations in value, the leaves only, sorted by path; nil
// when it fits. They are all of them up to a thousand. A value that costs too much
// to check does not fit. The value is valid JSON.
func (s *Schema) Validate(value json.RawMessage) []Violation {
	if hugeNumber.Match(value) {
		return []Violation{{Message: "holds a number with an exponent of more than three digits"}}
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return []Violation{{Message: err.Error()}}
	}
	var failed *jsonschema.ValidationError
	switch err := s.effort.during(func() error { return s.compiled.Validate(doc) }); {
	case err == nil:
		return nil
	case !errors.As(err, &failed):
		return []Violation{{Message: err.Error()}}
	}
	out := leaves(nil, failed, message.NewPrinter(language.English))
	slices.SortStableFunc(out, func(a, b Violation) int { return strings.Compare(a.Path+"\x00"+a.Message, b.Path+"\x00"+b.Message) })
	return slices.Compact(out)
}

func leaves(out []Violation, e *jsonschema.ValidationError, p *message.Printer) []Violation {
	if len(out) == maxViolations {
		return out
	}
	if extra, ok := e.ErrorKind.(*kind.AdditionalProperties); ok {
		slices.Sort(extra.Properties) // they come in the order of a map
	}
	if len(e.Causes) == 0 {
		return append(out, Violation{pointer(e.InstanceLocation), shorten(e.ErrorKind.LocalizedString(p))})
	}
	for _, cause := range e.Causes {
		out = leaves(out, cause, p)
	}
	return out
}

// shorten keeps the beginning of a message.
func shorten(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	n := maxMessage
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

func pointer(location []string) string {
	var b strings.Builder
	for _, token := range location {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
	}
	return b.String()
}

// sealed loads nothing.
type sealed struct{}

func (sealed) Load(url string) (any, error) {
	return nil, fmt.Errorf("references outside the schema are not followed: %s", url)
}

// depth returns how deep brackets nest outside of strings.
func depth(raw []byte) int {
	deepest, now := 0, 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			now++
			deepest = max(deepest, now)
		case '}', ']':
			now--
		}
	}
	return deepest
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), "mem:///schema.json", "")), " ")
}
