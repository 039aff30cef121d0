package upstreamtest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
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

// inspect returns why the dialect refuses a request that is JSON; nil = it does not. What one
// value may be is in the schemas; what depends on other values, or on what was sent before, is
// in the check of the dialect.
func inspect(d dialect, header http.Header, body []byte) *refusal {
	v, err := decode(body)
	if err != nil {
		return &refusal{message: err.Error()}
	}
	if p, ok := d.(geminiDialect); ok {
		v = p.named(v)
	}
	r := rulesOf(d.name())
	why := r.fault("", v)
	if why == nil {
		d.check(header, node{dots: r.style.Dots, why: &why, value: v, found: true})
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

// node is a value of a request that its schema accepts, with its place. The first refusal
// counts. Null counts as absent.
type node struct {
	dots  bool // tools.0.name, not tools[0].name
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
	return node{n.dots, n.why, child(n.path, name), v, ok && v != nil}
}

func child(parent, name string) string {
	if parent == "" {
		return name
	}
	return parent + "." + name
}

func element(dots bool, parent, i string) string {
	if dots {
		return parent + "." + i
	}
	return parent + "[" + i + "]"
}

func (n node) is(value string) bool { return n.value == value }

func (n node) text() string {
	s, _ := n.value.(string)
	return s
}

func (n node) boolean() bool {
	b, _ := n.value.(bool)
	return b
}

// list returns the elements of an array.
func (n node) list() []node {
	values, _ := n.value.([]any)
	nodes := make([]node, len(values))
	for i, v := range values {
		nodes[i] = node{n.dots, n.why, element(n.dots, n.path, strconv.Itoa(i)), v, v != nil}
	}
	return nodes
}

// number returns a number; absent = one that is given.
func (n node) number(absent float64) float64 {
	v, _ := n.value.(json.Number)
	f, err := v.Float64()
	if err != nil {
		return absent
	}
	return f
}

func (n node) strings() []string {
	var texts []string
	for _, e := range n.list() {
		texts = append(texts, e.text())
	}
	return texts
}

func sortedKeys(o object) []string {
	names := make([]string, 0, len(o))
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// isBase64 reports whether data can be decoded.
func isBase64(data string) bool {
	_, err := base64.StdEncoding.DecodeString(data)
	return err == nil && data != ""
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
