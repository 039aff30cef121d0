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

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// The bounds on a schema, from reference/reliability 4.6.
const (
	MaxBytes   = 64 << 10
	MaxDepth   = 32
	maxPattern = 1 << 10
)

// hugeNumber finds numbers such as 1e1000000000, whose exact value would fill
// the memory. It also finds them as a whole string; that costs nobody anything.
var hugeNumber = regexp.MustCompile(`[:\[,\s][-+]?[0-9.]+[eE][-+]?0*[1-9][0-9]{3,}\s*[,}\]]`)

// Schema is a compiled schema, safe for concurrent use.
type Schema struct{ compiled *jsonschema.Schema }

// Violation is one way in which a value does not fit.
type Violation struct {
	Path    string `json:"path"` // JSON pointer; empty for the whole value
	Message string `json:"message"`
}

// Compile reads a schema for arguments. It refuses what is no object or is not
// about one, what is too large or too deep, and every reference that leaves the
// document.
func Compile(raw json.RawMessage) (*Schema, error) {
	trimmed := bytes.TrimSpace(raw)
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
	c := jsonschema.NewCompiler()
	c.UseLoader(sealed{})
	c.UseRegexpEngine(linear)
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
	return &Schema{compiled}, nil
}

// Validate returns every violation in value, the leaves only, sorted by path;
// nil when it fits. The value is valid JSON.
func (s *Schema) Validate(value json.RawMessage) []Violation {
	if hugeNumber.Match(value) {
		return []Violation{{Message: "holds a number with an exponent of more than three digits"}}
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return []Violation{{Message: err.Error()}}
	}
	var failed *jsonschema.ValidationError
	switch err := s.compiled.Validate(doc); {
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
	if len(e.Causes) == 0 {
		return append(out, Violation{pointer(e.InstanceLocation), e.ErrorKind.LocalizedString(p)})
	}
	for _, cause := range e.Causes {
		out = leaves(out, cause, p)
	}
	return out
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

// linear compiles patterns with RE2. A pattern that RE2 cannot say (lookahead,
// backreference) is ignored rather than the whole tool.
func linear(pattern string) (jsonschema.Regexp, error) {
	if len(pattern) > maxPattern {
		return anything(pattern), nil
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return anything(pattern), nil
	}
	return re, nil
}

type anything string

func (anything) MatchString(string) bool { return true }
func (a anything) String() string        { return string(a) }

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
