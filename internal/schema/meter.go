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

// maxSteps limits the cost of one validation, in steps of at most 0.1 µs: about 2
// seconds. Checking a value against a subschema costs as many steps as the whole schema
// has values, because required names and enumerated values are compared one by one. The
// limit is necessary: with nested references a schema of 1 KiB can take exponential
// time.
const maxSteps = 1 << 24

// The limits on patterns. A pattern that exceeds one is ignored.
const (
	maxPattern      = 1 << 10 // bytes
	maxInstructions = 4 << 10 // instructions of the compiled program
	matchesPerStep  = 8       // pairs of an instruction and a byte per step
)

// errTooCostly is the error of a validation that exceeds maxSteps.
var errTooCostly = errors.New("too expensive to validate: send fewer or smaller values")

// meter counts the steps of a validation, one validation at a time.
type meter struct {
	mu            sync.Mutex // held during a validation
	stepsPerValue int        // number of values in the schema
	spent         int        // steps of the current validation
}

// spend counts n steps. It panics with errTooCostly if the validation exceeds maxSteps:
// the callbacks of the jsonschema package cannot return an error. mu is held, and run
// recovers the panic.
func (m *meter) spend(n int) {
	if m.spent += n; m.spent > maxSteps {
		panic(errTooCostly)
	}
}

// run runs a validation with mu held. It returns its error, or errTooCostly if it
// exceeds maxSteps.
func (m *meter) run(validate func() error) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spent = 0
	defer func() {
		if p := recover(); p == errTooCostly { //nolint:errorlint // compares with the value that spend panics with
			err = errTooCostly
		} else if p != nil {
			panic(p)
		}
	}()
	return validate()
}

// instrument makes root and every schema reachable from it count steps. It replaces the
// format of each schema, because the format is checked before any subschema. It returns
// an error for references whose target it cannot instrument.
func (m *meter) instrument(root *jsonschema.Schema, from string) error {
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
			return fmt.Errorf("references to other documents are not allowed: %s", s.Location)
		case s.DynamicRef != nil || s.RecursiveRef != nil:
			return errors.New("$dynamicRef and $recursiveRef are not supported")
		}
		s.Format = m.countingFormat()
		next = appendSubschemas(next, reflect.ValueOf(*s))
	}
	return nil
}

// countingFormat returns a format that counts steps and allows every value: a format of a
// schema describes values and refuses none, whatever its draft.
func (m *meter) countingFormat() *jsonschema.Format {
	return &jsonschema.Format{Validate: func(v any) error {
		children := 0
		switch v := v.(type) {
		case []any:
			children = len(v)
		case map[string]any:
			children = len(v)
		}
		m.spend((1 + children) * m.stepsPerValue)
		return nil
	}}
}

// appendSubschemas appends the schemas in the exported fields of v, also those in
// slices, maps and interfaces.
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

// members returns the number of values in a JSON document.
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

// compilePattern compiles a pattern with RE2, whose matching time is linear. It returns
// matchAll for a pattern that RE2 does not support (lookahead, backreferences) or that
// exceeds a limit: the tool remains usable without this check.
func (m *meter) compilePattern(text string) (jsonschema.Regexp, error) {
	if len(text) > maxPattern {
		return matchAll(text), nil
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return matchAll(text), nil
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil || len(program.Inst) > maxInstructions {
		return matchAll(text), nil
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return matchAll(text), nil
	}
	return &pattern{re, len(program.Inst), m}, nil
}

// pattern is a regular expression that counts the steps of each match.
type pattern struct {
	*regexp.Regexp
	instructions int
	meter        *meter
}

// MatchString implements [jsonschema.Regexp].
func (p *pattern) MatchString(s string) bool {
	p.meter.spend(len(s) * p.instructions / matchesPerStep)
	return p.Regexp.MatchString(s)
}

// matchAll stands for a pattern that is ignored: it matches every string.
type matchAll string

func (matchAll) MatchString(string) bool { return true }
func (a matchAll) String() string        { return string(a) }
