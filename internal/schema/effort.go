package schema

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxEffort bounds what one validation may cost, in steps of up to 0.1 µs. A
// value costs as many steps at every schema that it is held against as the whole
// schema has values (names that must be there, values to choose from). References
// let a schema of a kilobyte ask for more than there is time for.
const maxEffort = 1 << 24

// The bounds on patterns.
const (
	maxPattern      = 1 << 10 // bytes; from reference/reliability 4.6
	maxInstructions = 4 << 10 // of a pattern's program; a pattern with more is ignored
	matchesPerStep  = 8       // instructions that meet a byte
)

// errEffort ends a validation that costs too much.
var errEffort = errors.New("too much to check: send less at a time")

// effort counts the steps of one validation at a time.
type effort struct {
	mu     sync.Mutex // held during a validation
	weight int        // steps for each value
	spent  int
}

// spend counts n steps. The panic, which goes through code that knows no errors
// of ours, is caught where the validation began.
func (e *effort) spend(n int) {
	if e.spent += n; e.spent > maxEffort {
		panic(errEffort)
	}
}

// during runs a validation and returns its error, or errEffort.
func (e *effort) during(validate func() error) (err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spent = 0
	defer func() {
		if p := recover(); p == errEffort { //nolint:errorlint // the very value that spend panics with
			err = errEffort
		} else if p != nil {
			panic(p)
		}
	}()
	return validate()
}

// meter makes every schema that root can lead to count its steps. It uses the
// place of the format, which is asked before anything that leads to other
// schemas. The error says what cannot be metered.
func (e *effort) meter(root *jsonschema.Schema, from string) error {
	seen := map[*jsonschema.Schema]bool{}
	for next := []*jsonschema.Schema{root}; len(next) > 0; {
		s := next[0]
		next = next[1:]
		if seen[s] {
			continue
		}
		seen[s] = true
		switch {
		case !strings.HasPrefix(s.Location, from):
			return fmt.Errorf("references outside the schema are not followed: %s", s.Location)
		case s.DynamicRef != nil || s.RecursiveRef != nil:
			return errors.New("references that mean something else at each use are not followed")
		}
		s.Format = e.metered(s.Format)
		next = appendSubschemas(next, reflect.ValueOf(*s))
	}
	return nil
}

// metered returns a format that counts before it checks.
func (e *effort) metered(f *jsonschema.Format) *jsonschema.Format {
	if f == nil {
		f = &jsonschema.Format{Validate: func(any) error { return nil }}
	}
	return &jsonschema.Format{Name: f.Name, Validate: func(v any) error {
		children := 0
		switch v := v.(type) {
		case []any:
			children = len(v)
		case map[string]any:
			children = len(v)
		}
		e.spend((1 + children) * e.weight)
		return f.Validate(v)
	}}
}

// appendSubschemas appends the schemas in the exported fields of v, whatever
// holds them.
func appendSubschemas(out []*jsonschema.Schema, v reflect.Value) []*jsonschema.Schema {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out = appendSubschemas(out, v.Field(i))
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			out = appendSubschemas(out, v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			out = appendSubschemas(out, v.MapIndex(key))
		}
	case reflect.Interface:
		out = appendSubschemas(out, v.Elem())
	case reflect.Pointer:
		if s, ok := v.Interface().(*jsonschema.Schema); ok && s != nil {
			out = append(out, s)
		}
	default: // holds no schema
	}
	return out
}

// members counts the values in a JSON document.
func members(doc any) int {
	n := 1
	switch doc := doc.(type) {
	case []any:
		for _, v := range doc {
			n += members(v)
		}
	case map[string]any:
		for _, v := range doc {
			n += members(v)
		}
	}
	return n
}

// linear compiles patterns with RE2. A pattern that RE2 cannot say (lookahead,
// backreference), or that is too large, is ignored rather than the whole tool.
func (e *effort) linear(text string) (jsonschema.Regexp, error) {
	if len(text) > maxPattern {
		return anything(text), nil
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return anything(text), nil
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil || len(program.Inst) > maxInstructions {
		return anything(text), nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return anything(text), nil
	}
	return &pattern{re, len(program.Inst), e}, nil
}

// pattern counts what it costs to match.
type pattern struct {
	*regexp.Regexp
	instructions int
	effort       *effort
}

// MatchString implements [jsonschema.Regexp].
func (p *pattern) MatchString(s string) bool {
	p.effort.spend(len(s) * p.instructions / matchesPerStep)
	return p.Regexp.MatchString(s)
}

// anything is a pattern that is ignored.
type anything string

func (anything) MatchString(string) bool { return true }
func (a anything) String() string        { return string(a) }
