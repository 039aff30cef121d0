package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// toolsChoice reads "*", which is nil, or a list of names.
func toolsChoice(into *[]string) namesChoice { return namesChoice{into, "tool name", checkWord} }

// namesChoice reads "*", which is nil, or a list of texts that check accepts. A list with "*"
// is the same as "*"; an empty list selects nothing.
type namesChoice struct {
	into  *[]string
	want  string // one of them
	check func(string) error
}

func (c namesChoice) list() list[string]  { return texts(c.into, nil, c.want, c.check) }
func (c namesChoice) reset()              { *c.into = nil }
func (c namesChoice) typeName() string    { return `"*" or list of ` + c.want + "s" }
func (c namesChoice) defaultText() string { return `"*"` }

func (c namesChoice) json() any {
	if *c.into == nil {
		return "*"
	}
	return c.list().json()
}

func (c namesChoice) shown() string {
	if *c.into == nil {
		return "*"
	}
	return c.list().shown()
}

func (c namesChoice) decode(d *decoder, path string, n ast.Node) {
	if r := rawOf(n); r.kind == isText && r.text == "*" {
		return
	}
	if rawOf(n).kind != isList {
		d.failNode(n, path, `found %s, want "*" or a list of %ss`, rawOf(n), c.want)
		return
	}
	names := c
	names.into = new([]string)
	names.list().decode(d, path, n)
	if !slices.Contains(*names.into, "*") {
		*c.into = append([]string{}, *names.into...)
	}
}

// cacheChoice reads read_only, all, or a list of names.
type cacheChoice struct{ into *org.Cache }

func (c cacheChoice) reset()              { *c.into = org.Cache{} }
func (c cacheChoice) typeName() string    { return "read_only, all or list of tool names" }
func (c cacheChoice) defaultText() string { return "read_only" }

func (c cacheChoice) json() any {
	switch c.into.Mode {
	case org.CacheNames:
		return toolNames(&c.into.Names).json()
	case org.CacheReadOnly:
		return "read_only"
	}
	return string(c.into.Mode)
}

func (c cacheChoice) shown() string {
	if c.into.Mode == org.CacheNames {
		return toolNames(&c.into.Names).shown()
	}
	return cmp.Or(string(c.into.Mode), "read_only")
}

func (c cacheChoice) decode(d *decoder, path string, n ast.Node) {
	r := rawOf(n)
	switch {
	case r.kind == isList:
		*c.into = org.Cache{Mode: org.CacheNames}
		toolNames(&c.into.Names).decode(d, path, n)
	case r.kind == isText && r.text == "read_only":
		*c.into = org.Cache{}
	case r.kind == isText && r.text == "all":
		*c.into = org.Cache{Mode: org.CacheAll}
	default:
		d.failNode(n, path, "found %s, want %s", r, c.typeName())
	}
}

// approvalChoice reads never, always, or rules over tools.
type approvalChoice struct{ into *org.Approval }

func (c approvalChoice) reset()                  { *c.into = org.Approval{} }
func (c approvalChoice) typeName() string        { return "never, always, writes or map of rules" }
func (c approvalChoice) defaultText() string     { return "never" }
func (c approvalChoice) changed() (string, bool) { return c.shown(), c.into.Mode != org.ApproveNone }

func (c approvalChoice) json() any {
	if c.into.Mode == org.ApproveRules {
		return settingsOf(approvalKeys(c.into))
	}
	return c.shown()
}

func (c approvalChoice) shown() string {
	if c.into.Mode != org.ApproveRules {
		return cmp.Or(string(c.into.Mode), "never")
	}
	var rules []string
	for _, f := range []struct {
		name string
		of   *org.ToolFilter
	}{{"always", c.into.Always}, {"never", c.into.Never}} {
		if f.of != nil {
			rules = append(rules, f.name+": "+conditions(f.of))
		}
	}
	return "{" + strings.Join(rules, ", ") + "}"
}

// conditions returns the conditions of f in the form of the file.
func conditions(f *org.ToolFilter) string {
	var out []string
	if f.ToolNames != nil {
		out = append(out, "tool_names: ["+strings.Join(f.ToolNames, ", ")+"]")
	}
	if f.ReadOnly != nil {
		out = append(out, fmt.Sprintf("read_only: %t", *f.ReadOnly))
	}
	return "{" + strings.Join(out, ", ") + "}"
}

func (c approvalChoice) children() (string, []key) { return "", approvalKeys(c.into) }

func (c approvalChoice) decode(d *decoder, path string, n ast.Node) {
	r := rawOf(n)
	switch {
	case r.kind == isMap:
		*c.into = org.Approval{Mode: org.ApproveRules}
		d.mapping(path, n, approvalKeys(c.into))
	case r.kind == isText && r.text == "never":
		*c.into = org.Approval{}
	case r.kind == isText && r.text == "always":
		*c.into = org.Approval{Mode: org.ApproveAll}
	case r.kind == isText && r.text == "writes":
		*c.into = org.Approval{Mode: org.ApproveWrites}
	default:
		d.failNode(n, path, "found %s, want %s", r, c.typeName())
	}
}

// filter is a key with a selection of tools; absent, it selects none.
type filter struct{ into **org.ToolFilter }

func (f filter) reset()              { *f.into = nil }
func (f filter) typeName() string    { return "map" }
func (f filter) defaultText() string { return "unset" }

func (f filter) shown() string { return "map" }

func (f filter) json() any {
	if *f.into == nil {
		return unset{}
	}
	of := *f.into
	return slices.DeleteFunc(settingsOf(filterKeys(of)), func(s Setting) bool { // a condition that is not there selects all
		return s.Key == "tool_names" && of.ToolNames == nil || s.Key == "read_only" && of.ReadOnly == nil
	})
}

func (f filter) children() (string, []key) { return "", filterKeys(new(org.ToolFilter)) }

func (f filter) decode(d *decoder, path string, n ast.Node) {
	selected := new(org.ToolFilter)
	d.mapping(path, n, filterKeys(selected))
	*f.into = selected
}
