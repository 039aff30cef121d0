package config

import (
	"fmt"
	"strconv"

	"github.com/goccy/go-yaml/ast"
)

// kind is what a YAML value is.
type kind int

const (
	isText kind = iota
	isNumber
	isBool
	isNull
	isList
	isMap
	isAlias // also anchors, tags and merge keys: the file says what it means
	isOther
	isLoose // text of an environment variable, which may mean any scalar
)

// raw is a YAML value before a key has made sense of it.
type raw struct {
	kind kind
	text string // of scalars
}

func rawOf(n ast.Node) raw {
	switch n := n.(type) {
	case *ast.StringNode:
		return raw{isText, n.Value}
	case *ast.LiteralNode:
		return raw{isText, n.Value.Value}
	case *ast.IntegerNode:
		return raw{isNumber, fmt.Sprint(n.Value)}
	case *ast.FloatNode:
		return raw{isNumber, strconv.FormatFloat(n.Value, 'g', -1, 64)}
	case *ast.BoolNode:
		return raw{isBool, strconv.FormatBool(n.Value)}
	case *ast.NullNode, nil:
		return raw{kind: isNull}
	case *ast.SequenceNode:
		return raw{kind: isList}
	case *ast.MappingNode, *ast.MappingValueNode:
		return raw{kind: isMap}
	case *ast.AliasNode, *ast.AnchorNode, *ast.TagNode, *ast.MergeKeyNode:
		return raw{kind: isAlias}
	}
	return raw{kind: isOther}
}

// String says what was found, for a message.
func (r raw) String() string {
	switch r.kind {
	case isText, isLoose:
		return "text " + quote(r.text)
	case isNumber:
		return "the number " + r.text
	case isBool:
		return r.text
	}
	return r.noun()
}

// noun says what was found without showing it.
func (r raw) noun() string {
	switch r.kind {
	case isText, isLoose:
		return "text"
	case isNumber:
		return "a number"
	case isBool:
		return "true or false"
	case isNull:
		return "nothing"
	case isList:
		return "a list"
	case isMap:
		return "a map"
	case isAlias:
		return "an anchor, alias, tag or merge key (not supported: write the value out)"
	}
	return "something else"
}

// quote shows a text in a message, shortened.
func quote(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	return strconv.Quote(s)
}

func originOf(n ast.Node) origin {
	if n == nil {
		return origin{}
	}
	if m, ok := n.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		n = m.Values[0].Key // a block map has no bracket of its own
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return origin{line: t.Position.Line, column: t.Position.Column}
	}
	return origin{}
}

// entry is one line of a map.
type entry struct {
	name  string
	key   ast.Node
	value ast.Node
}

// entriesOf returns the lines of a map in order; false when n is no map with
// plain text keys.
func entriesOf(n ast.Node) ([]entry, bool) {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		return nil, false
	}
	entries := make([]entry, len(values))
	for i, v := range values {
		entries[i] = entry{keyName(v.Key), v.Key, v.Value}
	}
	return entries, true
}

// keyName is a key's text; a number or a boolean is what was written.
func keyName(n ast.Node) string {
	if k, ok := n.(*ast.MappingKeyNode); ok {
		n = k.Value
	}
	if s, ok := n.(*ast.StringNode); ok {
		return s.Value
	}
	if n == nil || n.GetToken() == nil {
		return ""
	}
	return n.GetToken().Value
}
