package schema

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
)

// The limits on merging one schema. Its references can repeat a branch many times.
const (
	maxBranches = 1000
	maxMerged   = 8 << 20 // bytes of all branches, and of the way to them
)

// anyArguments is the schema of a tool that says nothing of its arguments.
const anyArguments = `{"type":"object","properties":{}}`

// folded are the keywords that no schema of arguments has at its top level.
var folded = []string{"$ref", "oneOf", "anyOf", "allOf", "not", "enum"}

// objectArguments returns the normal form of the schema of a tool's arguments, as an
// object at the top: with type object, and without $ref, oneOf, anyOf, allOf, not and enum
// at the top level. The properties of all branches, and of the target of $ref, become
// properties, and required is what every branch demands. rest is an object with the other
// removed keywords, to be told to the model in another way; nil = there are none.
func objectArguments(schema []byte) (reduced, rest json.RawMessage) {
	schema = jsonscan.TrimSpace(schema)
	if !jsonscan.IsKind(schema, '{') || !jsonscan.Valid(schema) {
		return json.RawMessage(anyArguments), nil
	}
	schema = jsonscan.TrimSpace(NormalArguments(schema))
	if !slices.ContainsFunc(folded, func(name string) bool { return jsonscan.Member(schema, name) != nil }) &&
		jsonscan.Text(jsonscan.Member(schema, "type")) == "object" {
		return schema, nil
	}
	left := effort{maxBranches, maxMerged}
	m := merger{root: schema, left: &left}
	m.all(schema)
	m.own(schema) // members beside a $ref
	if left.exceeded() {
		return json.RawMessage(anyArguments), schema
	}
	var out []byte
	typed, propertied, required := false, false, false
	for name, v := range lastMembers(schema) {
		switch name {
		case "$ref":
			continue
		case "oneOf", "anyOf", "allOf", "not", "enum":
			rest = appendMember(rest, name, v)
			continue
		case "type":
			typed, v = true, []byte(`"object"`)
		case "properties":
			propertied, v = true, m.properties()
		case "required":
			required, v = true, m.requiredList()
		}
		out = appendMember(out, name, v)
	}
	if !typed {
		out = appendMember(out, "type", []byte(`"object"`))
	}
	if !propertied {
		out = appendMember(out, "properties", m.properties())
	}
	if !required && len(m.required.names) > 0 {
		out = appendMember(out, "required", m.requiredList())
	}
	if rest != nil {
		rest = append(rest, '}')
	}
	return append(out, '}'), rest
}

// maxToldSchema is how many bytes of a schema that cannot be sent as one are added to the
// description of the tool. Beyond it the model learns from the errors of its calls what a
// tool wants.
const maxToldSchema = 4 << 10

// Arguments returns the schema of a tool's arguments as every provider takes it at its top
// level: in the normal form, an object, and without $ref, oneOf, anyOf, allOf, not and enum
// there. What these said is told to the model in described, the description of the tool with
// a sentence after it, and returned in rest as an object; nil = nothing was removed. A
// provider that does not take all keywords below the top level gets reduced through
// [Dialect.Reduce].
func Arguments(schema json.RawMessage, description string) (reduced json.RawMessage, described string, rest json.RawMessage) {
	reduced, rest = objectArguments(schema)
	if len(rest) == 0 || len(rest) > maxToldSchema {
		return reduced, description, rest
	}
	if description != "" {
		description += "\n\n"
	}
	return reduced, description + "The arguments must also match this JSON Schema: " + string(rest), rest
}

// appendMember appends a member to an object that has no end yet.
func appendMember[S ~string](object []byte, name S, v []byte) []byte {
	object = append(object, "{,"[min(len(object), 1)])
	return append(append(jsonscan.AppendString(object, name), ':'), v...)
}

// lastMembers yields the members of an object in order, the last of each name.
func lastMembers(object []byte) func(yield func(string, []byte) bool) {
	return func(yield func(string, []byte) bool) {
		last := map[string]int{}
		n := 0
		for name := range jsonscan.Members(object) {
			last[string(name)] = n
			n++
		}
		n = 0
		for name, v := range jsonscan.Members(object) {
			key := string(name)
			n++
			if last[key] == n-1 && !yield(key, v) {
				return
			}
		}
	}
}

// effort is what may still be merged.
type effort struct{ branches, bytes int }

func (e *effort) exceeded() bool { return e.branches < 0 || e.bytes < 0 }

// merger collects what the branches of a schema say of one object.
type merger struct {
	root     []byte
	left     *effort  // of all mergers of the schema
	names    []string // of properties, in order
	schemas  map[string][][]byte
	required set // by every branch that must hold
}

// set is a set of names in the order in which they were added.
type set struct {
	names []string
	has   map[string]bool
}

func (s *set) add(name string) {
	if s.has == nil {
		s.has = map[string]bool{}
	}
	if !s.has[name] {
		s.has[name] = true
		s.names = append(s.names, name)
	}
}

// all adds a schema that must hold.
func (m *merger) all(schema []byte) {
	schema = m.resolve(schema)
	m.left.branches--
	m.left.bytes -= len(schema)
	if m.left.exceeded() || !jsonscan.IsKind(schema, '{') {
		return
	}
	m.own(schema)
	for _, branch := range jsonscan.Elements(jsonscan.TrimSpace(jsonscan.Member(schema, "allOf"))) {
		m.all(branch)
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		m.any(jsonscan.Member(schema, key))
	}
}

// any adds schemas of which one must hold: their properties, and what all of them
// require.
func (m *merger) any(branches []byte) {
	var common []string
	for i, branch := range jsonscan.Elements(jsonscan.TrimSpace(branches)) {
		one := merger{root: m.root, left: m.left}
		one.all(branch)
		if m.left.exceeded() {
			return
		}
		for _, name := range one.names {
			m.left.bytes -= len(name)
			for _, s := range one.schemas[name] {
				m.left.bytes -= len(s)
				m.addProperty(name, s)
			}
		}
		if i == 0 {
			common = one.required.names
		}
		m.left.bytes -= len(common)
		common = slices.DeleteFunc(slices.Clone(common), func(name string) bool { return !one.required.has[name] })
	}
	for _, name := range common {
		m.required.add(name)
	}
}

// resolve follows a reference to a definition of the schema itself.
func (m *merger) resolve(schema []byte) []byte {
	for ; !m.left.exceeded(); m.left.branches-- {
		schema = jsonscan.TrimSpace(schema)
		ref, ok := strings.CutPrefix(jsonscan.Text(jsonscan.Member(schema, "$ref")), "#/")
		if !ok || !jsonscan.IsKind(schema, '{') {
			return schema
		}
		to := m.root
		m.left.bytes -= len(schema)
		for step := range strings.SplitSeq(ref, "/") {
			m.left.bytes -= len(to)
			to = jsonscan.TrimSpace(jsonscan.Member(to, strings.NewReplacer("~1", "/", "~0", "~").Replace(step)))
			if len(to) == 0 || m.left.exceeded() {
				return nil
			}
		}
		schema = to
	}
	return nil
}

// own adds what a schema itself says of its object, without its branches.
func (m *merger) own(schema []byte) {
	for name, s := range lastMembers(jsonscan.TrimSpace(jsonscan.Member(schema, "properties"))) {
		m.addProperty(name, s)
	}
	for _, name := range names(jsonscan.Member(schema, "required")) {
		m.required.add(name)
	}
}

func (m *merger) addProperty(name string, schema []byte) {
	if m.schemas == nil {
		m.schemas = map[string][][]byte{}
	}
	if _, known := m.schemas[name]; !known {
		m.names = append(m.names, name)
	}
	same := func(s []byte) bool { return bytes.Equal(s, schema) }
	if !slices.ContainsFunc(m.schemas[name], same) {
		m.schemas[name] = append(m.schemas[name], schema)
	}
}

// properties returns the properties, those with several schemas as anyOf.
func (m *merger) properties() []byte {
	var out []byte
	for _, name := range m.names {
		schema := m.schemas[name][0]
		if all := m.schemas[name]; len(all) > 1 {
			schema = append(append([]byte(`{"anyOf":[`), bytes.Join(all, []byte(","))...), "]}"...)
		}
		out = appendMember(out, name, schema)
	}
	if out == nil {
		return []byte(`{}`)
	}
	return append(out, '}')
}

func (m *merger) requiredList() []byte {
	out, err := json.Marshal(m.required.names)
	if err != nil || m.required.names == nil {
		return []byte(`[]`)
	}
	return out
}

// names returns the texts of an array.
func names(array []byte) (all []string) {
	for _, v := range jsonscan.Elements(jsonscan.TrimSpace(array)) {
		if jsonscan.HasText(v) {
			all = append(all, jsonscan.Text(v))
		}
	}
	return all
}
