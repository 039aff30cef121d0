package upstreamtest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// refusal is why a provider refuses a request.
type refusal struct {
	message string
	param   string // the member; OpenAI's dialects only
	code    string // OpenAI's dialects only; "" = null
}

// style is how a dialect writes the place of a member and what is wrong there.
type style interface {
	child(parent, name string) string
	element(parent string, i int) string
	missing(path string) refusal
	unknown(parent, name string) refusal
	wrongType(path, want string, got any) refusal
	notOneOf(path string, values []string, got string) refusal
	tooSmall(path string, least int64, got json.Number) refusal
	outside(path string, low, high float64, got json.Number) refusal
	badName(path, pattern string) refusal
	tooLong(path string, most, got int) refusal
	empty(path string) refusal
}

// inspect returns why the dialect refuses a request that is JSON; nil = it does
// not.
func inspect(d dialect, header http.Header, body []byte) *refusal {
	v, err := decode(body)
	if err != nil {
		return &refusal{message: err.Error()}
	}
	var why *refusal
	n := node{style: d.style(), why: &why, value: v, found: true}
	if n.object() {
		d.check(header, n)
	}
	return why
}

// decode reads JSON; numbers keep their spelling.
func decode(data []byte) (any, error) {
	var v any
	r := json.NewDecoder(bytes.NewReader(data))
	r.UseNumber()
	err := r.Decode(&v)
	return v, err
}

// node is a value of a request, with its place. Its methods check it; the first
// refusal counts. Null counts as absent.
type node struct {
	style style
	why   **refusal
	path  string
	value any
	found bool
}

// refuse refuses the request. The message names the place already, or needs none.
func (n node) refuse(code, format string, args ...any) {
	n.reject(refusal{message: fmt.Sprintf(format, args...), param: n.path, code: code})
}

func (n node) reject(r refusal) {
	if *n.why == nil {
		*n.why = &r
	}
}

// get returns a member of an object.
func (n node) get(name string) node {
	o, _ := n.value.(object)
	v, ok := o[name]
	return node{n.style, n.why, n.style.child(n.path, name), v, ok && v != nil}
}

// need returns a member and refuses a request without it.
func (n node) need(name string) node {
	m := n.get(name)
	if !m.found {
		n.reject(n.style.missing(m.path))
	}
	return m
}

// typed refuses a value that is there and is not of the type.
func typed[T any](n node, want string) (T, bool) {
	v, ok := n.value.(T)
	if n.found && !ok {
		n.reject(n.style.wrongType(n.path, want, n.value))
	}
	return v, ok && n.found
}

func (n node) object() bool {
	_, ok := typed[object](n, "object")
	return ok
}

func (n node) text() string {
	s, _ := typed[string](n, "string")
	return s
}

func (n node) boolean() bool {
	b, _ := typed[bool](n, "boolean")
	return b
}

// list returns the elements of an array.
func (n node) list() []node {
	values, _ := typed[[]any](n, "array")
	nodes := make([]node, len(values))
	for i, v := range values {
		nodes[i] = node{n.style, n.why, n.style.element(n.path, i), v, v != nil}
	}
	return nodes
}

// integer checks a whole number of at least the given size.
func (n node) integer(least int64) int64 {
	number, ok := typed[json.Number](n, "integer")
	if !ok {
		return 0
	}
	i, err := number.Int64()
	switch {
	case err != nil:
		n.reject(n.style.wrongType(n.path, "integer", n.value))
	case i < least:
		n.reject(n.style.tooSmall(n.path, least, number))
	}
	return i
}

// between checks a number.
func (n node) between(low, high float64) float64 {
	number, ok := typed[json.Number](n, "number")
	if !ok {
		return math.NaN()
	}
	f, err := number.Float64()
	if err != nil || f < low || f > high {
		n.reject(n.style.outside(n.path, low, high, number))
	}
	return f
}

// oneOf checks a text.
func (n node) oneOf(values ...string) string {
	s := n.text()
	if n.found && !slices.Contains(values, s) {
		n.reject(n.style.notOneOf(n.path, values, s))
	}
	return s
}

// named checks a name: letters, digits, _ and -.
func (n node) named(most int) string {
	s := n.text()
	switch {
	case !n.found:
	case !nameCharacters.MatchString(s):
		n.reject(n.style.badName(n.path, nameCharacters.String()))
	case len(s) > most:
		n.reject(n.style.tooLong(n.path, most, len(s)))
	}
	return s
}

var nameCharacters = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// known refuses members that the dialect does not have.
func (n node) known(names ...string) {
	o, _ := n.value.(object)
	for _, name := range sortedKeys(o) {
		if !slices.Contains(names, name) {
			n.reject(n.style.unknown(n.path, name))
		}
	}
}

func sortedKeys(o object) []string {
	names := make([]string, 0, len(o))
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// strings checks a list of texts.
func (n node) strings() []string {
	var texts []string
	for _, e := range n.list() {
		texts = append(texts, e.text())
	}
	return texts
}

// stringMap checks an object whose values are texts.
func (n node) stringMap() {
	o, _ := typed[object](n, "object")
	for _, name := range sortedKeys(o) {
		n.get(name).text()
	}
}

// isBase64 reports whether data can be decoded.
func isBase64(data string) bool {
	_, err := base64.StdEncoding.DecodeString(data)
	return err == nil && data != ""
}

// dataURL takes a data URL apart.
func dataURL(url string) (media, data string, ok bool) {
	rest, ok := strings.CutPrefix(url, "data:")
	media, data, comma := strings.Cut(rest, ",")
	media, encoded := strings.CutSuffix(media, ";base64")
	return media, data, ok && comma && encoded
}

func isImage(media string) bool {
	return slices.Contains([]string{"image/jpeg", "image/png", "image/gif", "image/webp"}, media)
}

// mentions reports whether a text anywhere in the value contains the word.
func mentions(v any, word string) bool {
	switch v := v.(type) {
	case string:
		return strings.Contains(strings.ToLower(v), word)
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return mentions(e, word) })
	case object:
		for _, e := range v {
			if mentions(e, word) {
				return true
			}
		}
	}
	return false
}

// strictSchema returns what OpenAI refuses about a schema that must be followed
// exactly: every object lists all of its properties as required and allows no
// others. "" = nothing.
func strictSchema(v any, context []string) string {
	o, _ := v.(object)
	if o == nil {
		return ""
	}
	if properties, isObject := o["properties"].(object); isObject || o["type"] == "object" {
		where := "In context=(" + strings.Join(context, ", ") + "), "
		if o["additionalProperties"] != false {
			return where + "'additionalProperties' is required to be supplied and to be false."
		}
		required, _ := o["required"].([]any)
		for _, name := range sortedKeys(properties) {
			if !slices.Contains(required, any(name)) {
				return where + "'required' is required to be supplied and to be an array including every key in properties. Missing '" + name + "'."
			}
			if why := strictSchema(properties[name], append(slices.Clone(context), "'properties'", "'"+name+"'")); why != "" {
				return why
			}
		}
	}
	if why := strictSchema(o["items"], append(slices.Clone(context), "'items'")); why != "" {
		return why
	}
	for _, name := range []string{"anyOf", "$defs"} {
		inner := append(slices.Clone(context), "'"+name+"'")
		switch of := o[name].(type) {
		case []any:
			for i, e := range of {
				if why := strictSchema(e, append(inner, "'"+strconv.Itoa(i)+"'")); why != "" {
					return why
				}
			}
		case object:
			for _, key := range sortedKeys(of) {
				if why := strictSchema(of[key], append(inner, "'"+key+"'")); why != "" {
					return why
				}
			}
		}
	}
	return ""
}

// openAIStyle is that of both dialects of OpenAI: tools[0].name.
type openAIStyle struct{ topLevel string } // topLevel words an unknown member of the request; "" = as any other

func (openAIStyle) child(parent, name string) string {
	if parent == "" {
		return name
	}
	return parent + "." + name
}

func (openAIStyle) element(parent string, i int) string { return fmt.Sprintf("%s[%d]", parent, i) }

func (openAIStyle) missing(path string) refusal {
	return refusal{"Missing required parameter: '" + path + "'.", path, "missing_required_parameter"}
}

func (s openAIStyle) unknown(parent, name string) refusal {
	if parent == "" && s.topLevel != "" {
		return refusal{message: fmt.Sprintf(s.topLevel, name)}
	}
	path := s.child(parent, name)
	return refusal{"Unknown parameter: '" + path + "'.", path, "unknown_parameter"}
}

func (openAIStyle) wrongType(path, want string, got any) refusal {
	return refusal{fmt.Sprintf("Invalid type for '%s': expected %s, but got %s instead.", path, article(want), article(typeName(got))), path, "invalid_type"}
}

func article(noun string) string {
	if strings.ContainsAny(noun[:1], "aeiou") {
		return "an " + noun
	}
	return "a " + noun
}

func typeName(v any) string {
	switch v := v.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case json.Number:
		if _, err := v.Int64(); err != nil {
			return "decimal"
		}
		return "integer"
	case []any:
		return "array"
	}
	return "object"
}

func (openAIStyle) notOneOf(path string, values []string, got string) refusal {
	return refusal{"Invalid value: '" + got + "'. Supported values are: '" + strings.Join(values, "', '") + "'.", path, "invalid_value"}
}

func (openAIStyle) tooSmall(path string, least int64, got json.Number) refusal {
	return refusal{fmt.Sprintf("Invalid '%s': integer below minimum value. Expected a value >= %d, but got %s instead.", path, least, got), path, "integer_below_min_value"}
}

func (openAIStyle) outside(path string, low, high float64, got json.Number) refusal {
	if f, err := got.Float64(); err == nil && f > high {
		return refusal{fmt.Sprintf("Invalid '%s': decimal above maximum value. Expected a value <= %v, but got %s instead.", path, high, got), path, "decimal_above_max_value"}
	}
	return refusal{fmt.Sprintf("Invalid '%s': decimal below minimum value. Expected a value >= %v, but got %s instead.", path, low, got), path, "decimal_below_min_value"}
}

func (openAIStyle) badName(path, pattern string) refusal {
	return refusal{fmt.Sprintf("Invalid '%s': string does not match pattern. Expected a string that matches the pattern '%s'.", path, pattern), path, "invalid_value"}
}

func (openAIStyle) tooLong(path string, most, got int) refusal {
	return refusal{fmt.Sprintf("Invalid '%s': string too long. Expected a string with maximum length %d, but got a string with length %d instead.", path, most, got), path, "string_above_max_length"}
}

func (openAIStyle) empty(path string) refusal {
	return refusal{fmt.Sprintf("Invalid '%s': empty array. Expected an array with minimum length 1, but got an empty array instead.", path), path, "empty_array"}
}

// anthropicStyle writes tools.0.name.
type anthropicStyle struct{}

func (anthropicStyle) child(parent, name string) string { return openAIStyle{}.child(parent, name) }

func (anthropicStyle) element(parent string, i int) string { return fmt.Sprintf("%s.%d", parent, i) }

func (anthropicStyle) missing(path string) refusal {
	return refusal{message: path + ": Field required"}
}

func (s anthropicStyle) unknown(parent, name string) refusal {
	return refusal{message: s.child(parent, name) + ": Extra inputs are not permitted"}
}

func (anthropicStyle) wrongType(path, want string, _ any) refusal {
	names := map[string]string{"array": "list", "object": "dictionary"}
	if name := names[want]; name != "" {
		want = name
	}
	return refusal{message: path + ": Input should be a valid " + want}
}

func (anthropicStyle) notOneOf(path string, values []string, _ string) refusal {
	all := "'" + strings.Join(values, "', '") + "'"
	if i := strings.LastIndex(all, ", "); i >= 0 {
		all = all[:i] + " or" + all[i+1:]
	}
	return refusal{message: path + ": Input should be " + all}
}

func (anthropicStyle) tooSmall(path string, least int64, _ json.Number) refusal {
	return refusal{message: fmt.Sprintf("%s: Input should be greater than or equal to %d", path, least)}
}

func (anthropicStyle) outside(path string, low, high float64, got json.Number) refusal {
	if f, err := got.Float64(); err == nil && f > high {
		return refusal{message: fmt.Sprintf("%s: Input should be less than or equal to %v", path, high)}
	}
	return refusal{message: fmt.Sprintf("%s: Input should be greater than or equal to %v", path, low)}
}

func (anthropicStyle) badName(path, pattern string) refusal {
	return refusal{message: path + ": String should match pattern '" + pattern + "'"}
}

func (anthropicStyle) tooLong(path string, most, _ int) refusal {
	return refusal{message: fmt.Sprintf("%s: String should have at most %d characters", path, most)}
}

func (anthropicStyle) empty(path string) refusal {
	return refusal{message: path + ": List should have at least 1 item after validation, not 0"}
}
