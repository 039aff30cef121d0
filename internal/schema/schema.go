// Package schema validates tool arguments against the JSON Schema of a tool. Schemas
// come from remote servers and are not trusted: references never load anything, size
// and depth are limited, patterns run in linear time, and each validation has a limit on
// its cost.
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

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
)

// The limits on a schema. Schemas of real tools stay below them, and a compiled schema
// of this size takes little memory.
const (
	MaxBytes = 64 << 10
	MaxDepth = 32 // levels of objects and arrays
)

// hugeExponent matches numbers with an exponent of four or more digits, such as
// 1e1000000000: computing their exact value would exhaust the memory. It also matches
// such a number within a string, which is then refused as well.
var hugeExponent = regexp.MustCompile(`[:\[,\s][-+]?[0-9.]+[eE][-+]?0*[1-9][0-9]{3,}\s*[,}\]]`)

// The limits on the result of a validation.
const (
	maxViolations = 1000
	maxMessage    = 512 // bytes; a message may quote the value and all allowed values
)

// Schema is a compiled schema. It is safe for concurrent use; validations of one Schema
// run one at a time.
type Schema struct {
	compiled *jsonschema.Schema
	meter    *meter
}

// Violation is one reason why a value is not valid.
type Violation struct {
	Path    string `json:"path"` // JSON pointer (RFC 6901); "" = the whole value
	Message string `json:"message"`
}

// Compile compiles the schema of a tool's arguments. It returns an error if raw is not a
// JSON object, is not a schema for objects, exceeds [MaxBytes] or [MaxDepth], or has a
// reference to another document. The error completes a sentence about the schema.
func Compile(raw json.RawMessage) (*Schema, error) {
	trimmed := bytes.Trim(raw, " \t\r\n") // the whitespace of JSON
	switch {
	case len(trimmed) == 0:
		return nil, errors.New("missing")
	case trimmed[0] != '{':
		return nil, errors.New("not a JSON object")
	case len(trimmed) > MaxBytes:
		return nil, fmt.Errorf("larger than %d bytes", MaxBytes)
	case jsonscan.Depth(trimmed) > MaxDepth:
		return nil, fmt.Errorf("nested deeper than %d levels", MaxDepth)
	case hugeExponent.Match(trimmed):
		return nil, errors.New("contains a number with an exponent of more than three digits")
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(trimmed))
	if err != nil {
		return nil, fmt.Errorf("not valid JSON: %w", err)
	}
	m := &meter{stepsPerValue: members(doc)}
	compiled, err := compile(doc, m)
	if err != nil {
		compiled, err = compileNormal(trimmed, m, err)
	}
	if err != nil {
		return nil, fmt.Errorf("not a usable JSON Schema: %s", oneLine(err))
	}
	if types, ok := doc.(map[string]any)["type"]; ok && types != "object" {
		return nil, fmt.Errorf("for a %v, but tool arguments are an object", types)
	}
	if err := m.instrument(compiled, here); err != nil {
		return nil, fmt.Errorf("not a usable JSON Schema: %w", err)
	}
	return &Schema{compiled, m}, nil
}

// here is the address of a schema in its compiler.
const here = "mem:///schema.json"

func compile(doc any, m *meter) (*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.UseRegexpEngine(m.compilePattern)
	if err := c.AddResource(here, doc); err != nil {
		return nil, err
	}
	return c.Compile(here)
}

// compileNormal compiles the normal form of a schema that is not valid as it is: one of an
// older draft that does not say so, or with [] in place of an object. It returns invalid if
// the normal form is not valid either.
func compileNormal(raw json.RawMessage, m *meter, invalid error) (*jsonschema.Schema, error) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Normal(raw)))
	if err != nil {
		return nil, invalid
	}
	compiled, err := compile(doc, m)
	if err != nil {
		return nil, invalid
	}
	return compiled, nil
}

// Validate returns the violations in value, sorted by path, or nil if it is valid. Only
// the innermost violations are returned, and at most 1,000. A value whose validation
// costs too much has one violation that says so. value must be valid JSON.
func (s *Schema) Validate(value json.RawMessage) []Violation {
	if hugeExponent.Match(value) {
		return []Violation{{Message: "contains a number with an exponent of more than three digits"}}
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return []Violation{{Message: err.Error()}}
	}
	var failed *jsonschema.ValidationError
	switch err := s.meter.run(func() error { return s.compiled.Validate(doc) }); {
	case err == nil:
		return nil
	case !errors.As(err, &failed):
		return []Violation{{Message: err.Error()}}
	}
	out := leaves(nil, failed, message.NewPrinter(language.English))
	slices.SortStableFunc(out, func(a, b Violation) int { return strings.Compare(a.Path+"\x00"+a.Message, b.Path+"\x00"+b.Message) })
	return slices.Compact(out)
}

// leaves appends the errors without causes in e.
func leaves(out []Violation, e *jsonschema.ValidationError, p *message.Printer) []Violation {
	if len(out) == maxViolations {
		return out
	}
	if extra, ok := e.ErrorKind.(*kind.AdditionalProperties); ok {
		slices.Sort(extra.Properties) // their order is that of a map
	}
	if len(e.Causes) == 0 {
		return append(out, Violation{pointer(e.InstanceLocation), shorten(e.ErrorKind.LocalizedString(p))})
	}
	for _, cause := range e.Causes {
		out = leaves(out, cause, p)
	}
	return out
}

// shorten truncates a message to maxMessage bytes and adds an ellipsis.
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

// pointer returns the JSON pointer (RFC 6901) of a location.
func pointer(location []string) string {
	var b strings.Builder
	for _, token := range location {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(token))
	}
	return b.String()
}

// noLoader refuses to load any document.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("references to other documents are not allowed: %s", url)
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), "mem:///schema.json", "")), " ")
}
