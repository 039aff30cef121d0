package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/httptool"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/schema"
)

// jsonSchema is a key with a JSON Schema of an object, written in YAML or JSON.
type jsonSchema struct{ into *json.RawMessage }

const anyObject = `{"type":"object"}`

func (s jsonSchema) reset()              { *s.into = json.RawMessage(anyObject) }
func (s jsonSchema) typeName() string    { return "JSON Schema of an object, as a map" }
func (s jsonSchema) defaultText() string { return "{type: object}" }
func (s jsonSchema) json() any           { return *s.into }
func (s jsonSchema) shown() string       { return string(*s.into) }

func (s jsonSchema) decode(d *decoder, path string, n ast.Node) {
	if _, ok := entriesOf(n); !ok {
		d.failNode(n, path, "found %s, want a %s", rawOf(n), s.typeName())
		return
	}
	before := len(d.mistakes)
	var text bytes.Buffer
	d.writeJSON(&text, path, n)
	if len(d.mistakes) > before {
		return
	}
	if _, err := schema.Compile(text.Bytes()); err != nil {
		d.failNode(n, path, "is not a schema that can be used: it is %v", err)
		return
	}
	*s.into = text.Bytes()
}

// writeJSON writes a YAML value as JSON, with the members in the order of the file.
func (d *decoder) writeJSON(b *bytes.Buffer, path string, n ast.Node) {
	if entries, ok := entriesOf(n); ok {
		b.WriteByte('{')
		given := map[string]bool{}
		for i, e := range entries {
			if given[e.name] {
				d.failNode(e.key, join(path, e.name), "is given twice")
			}
			given[e.name] = true
			if i > 0 {
				b.WriteByte(',')
			}
			writeText(b, e.name)
			b.WriteByte(':')
			d.writeJSON(b, join(path, e.name), e.value)
		}
		b.WriteByte('}')
		return
	}
	if list, ok := n.(*ast.SequenceNode); ok {
		b.WriteByte('[')
		for i, item := range list.Values {
			if i > 0 {
				b.WriteByte(',')
			}
			d.writeJSON(b, fmt.Sprintf("%s[%d]", path, i), item)
		}
		b.WriteByte(']')
		return
	}
	switch r := rawOf(n); r.kind {
	case isText:
		writeText(b, r.text)
	case isNumber, isBool:
		b.WriteString(r.text)
	case isNull:
		b.WriteString("null")
	case isList, isMap, isAlias, isOther, isLoose:
		d.failNode(n, path, "found %s, want JSON or YAML without tags", r)
	}
}

func writeText(b *bytes.Buffer, text string) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // text: cannot fail
	b.Truncate(b.Len() - len("\n"))
}

// checkFunction takes a name that every model API takes as the name of a function.
func checkFunction(s string) error {
	const pattern = `^[a-zA-Z_][a-zA-Z0-9_-]{0,63}$`
	if !regexp.MustCompile(pattern).MatchString(s) || s == "__proto__" {
		return fmt.Errorf("%s is not a name of a function; want %s", quote(s), pattern)
	}
	return nil
}

func checkDescription(s string) error {
	if s == "" || len(s) > catalog.MaxDescription {
		return fmt.Errorf("has %d bytes; want 1 to %s", len(s), strconv.Itoa(catalog.MaxDescription))
	}
	if strings.ContainsFunc(s, func(r rune) bool { return isControl(r) && r != '\n' && r != '\t' }) {
		return errors.New("has a control character")
	}
	return nil
}

func checkEndpoint(s string) error {
	u, err := httptool.ParseURL(s)
	if err != nil {
		return err
	}
	return checkURL(u.Sample())
}

// checkHTTPTools compares the HTTP tools of an org with each other, with their schemas and with the MCP servers.
func (d *decoder) checkHTTPTools(path string, o *Org) {
	unique(d, o.HTTPTools, path+".http_tools[%d].name", func(t org.HTTPTool) string { return t.Name })
	for i, t := range o.HTTPTools {
		d.checkHTTPTool(fmt.Sprintf("%s.http_tools[%d]", path, i), t)
	}
	for i, m := range o.MCPServers {
		if m.Name == org.HTTPTools && len(o.HTTPTools) > 0 || m.Name == org.BuiltinTools {
			d.failPath(fmt.Sprintf("%s.mcp_servers[%d].name", path, i), "%[1]s is the name of the server of %[1]s; want another one", m.Name)
		}
	}
}

// checkHTTPTool compares the settings of a tool with each other.
func (d *decoder) checkHTTPTool(path string, t org.HTTPTool) {
	u, err := httptool.ParseURL(t.URL)
	if err != nil {
		return // reported
	}
	required := requiredOf(t.InputSchema)
	for _, name := range u.Arguments() {
		if !slices.Contains(required, name) {
			d.failPath(join(path, "url"), "has the argument {%s}, which input_schema does not require; add it to required there", name)
		}
	}
	if t.Method == "GET" && t.Arguments == org.ArgumentsInBody {
		d.failPath(join(path, "arguments"), "a GET request has no body; want query")
	}
}

// requiredOf returns the properties that a schema requires.
func requiredOf(s json.RawMessage) []string {
	var object struct{ Required []string }
	if json.Unmarshal(s, &object) != nil {
		return nil
	}
	return object.Required
}
