package config

import "github.com/goccy/go-yaml/ast"

// toolsChoice reads "*" or a list of names.
type toolsChoice struct{ into *Tools }

func (c toolsChoice) reset()              { *c.into = Tools{All: true} }
func (c toolsChoice) typeName() string    { return `"*" or list of tool names` }
func (c toolsChoice) defaultText() string { return `"*"` }

func (c toolsChoice) decode(d *decoder, path string, n ast.Node) {
	if r := rawOf(n); r.kind == isText && r.text == "*" {
		return
	}
	if rawOf(n).kind != isList {
		d.failNode(n, path, `found %s, want "*" or a list of tool names`, rawOf(n))
		return
	}
	*c.into = Tools{}
	toolNames(&c.into.Names).decode(d, path, n)
}

// cacheChoice reads read_only, all, or a list of names.
type cacheChoice struct{ into *Cache }

func (c cacheChoice) reset()                  { *c.into = Cache{Mode: "read_only"} }
func (c cacheChoice) typeName() string        { return "read_only, all or list of tool names" }
func (c cacheChoice) defaultText() string     { return "read_only" }
func (c cacheChoice) changed() (string, bool) { return c.into.Mode, c.into.Mode != "read_only" }

func (c cacheChoice) decode(d *decoder, path string, n ast.Node) {
	r := rawOf(n)
	switch {
	case r.kind == isList:
		*c.into = Cache{Mode: "names"}
		toolNames(&c.into.Names).decode(d, path, n)
	case r.kind == isText && (r.text == "read_only" || r.text == "all"):
		*c.into = Cache{Mode: r.text}
	default:
		d.failNode(n, path, "found %s, want %s", r, c.typeName())
	}
}

// approvalChoice reads never, always, or rules over tools.
type approvalChoice struct{ into *Approval }

func (c approvalChoice) reset()                  { *c.into = Approval{Mode: "never"} }
func (c approvalChoice) typeName() string        { return "never, always or map of rules" }
func (c approvalChoice) defaultText() string     { return "never" }
func (c approvalChoice) changed() (string, bool) { return c.into.Mode, c.into.Mode != "never" }

func (c approvalChoice) children() (string, []key) {
	return "", c.into.keys()
}

func (c approvalChoice) decode(d *decoder, path string, n ast.Node) {
	r := rawOf(n)
	switch {
	case r.kind == isMap:
		c.into.Mode = "rules"
		d.mapping(path, n, c.into.keys())
	case r.kind == isText && (r.text == "never" || r.text == "always"):
		c.into.Mode = r.text
	default:
		d.failNode(n, path, "found %s, want %s", r, c.typeName())
	}
}

// filter is a key with a selection of tools; absent, it selects none.
type filter struct{ into **ToolFilter }

func (f filter) reset()              { *f.into = nil }
func (f filter) typeName() string    { return "map" }
func (f filter) defaultText() string { return "unset" }

func (f filter) children() (string, []key) { return "", new(ToolFilter).keys() }

func (f filter) decode(d *decoder, path string, n ast.Node) {
	selected := new(ToolFilter)
	d.mapping(path, n, selected.keys())
	*f.into = selected
}
