package config

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// key is one line of the table that describes the file.
type key struct {
	name     string
	value    value
	env      string // the variable that overrides it
	required bool
	doc      string
}

// value is where a key's content goes.
type value interface {
	reset()                                     // puts the default in
	decode(d *decoder, path string, n ast.Node) // reads n over it, or reports why not
	typeName() string                           // for the documentation
	defaultText() string
}

// changer is a value that can say whether it differs from its default.
type changer interface {
	changed() (now string, yes bool)
}

// decoder reads one file. It goes on after a mistake, so that all are found.
type decoder struct {
	file     string
	dir      string           // of the file; "" = it is the working directory, or there is no file
	moved    map[string]Moved // the paths that dir has changed, by key
	mistakes []Mistake
	warnings []Mistake
	where    map[string]origin // the values that were given, by path

	// Of a part that is read by itself, see part.go:
	within string // the path of its keys in the documentation, such as orgs[].runtime.
	nulls  bool   // null gives a key of the part its default
}

func (d *decoder) fail(o origin, path, format string, args ...any) {
	d.mistakes = append(d.mistakes, o.mistake(d.file, path, fmt.Sprintf(format, args...)))
}

func (d *decoder) failNode(n ast.Node, path, format string, args ...any) {
	d.fail(originOf(n), path, format, args...)
}

// failPath reports a mistake at the place where path was given, or the nearest
// key around it.
func (d *decoder) failPath(path, format string, args ...any) {
	d.fail(nearestOrigin(d.where, path), path, format, args...)
}

func (d *decoder) warn(o origin, path, format string, args ...any) {
	d.warnings = append(d.warnings, o.mistake(d.file, path, fmt.Sprintf(format, args...)))
}

// nearestOrigin returns where path or the closest key around it was given.
func nearestOrigin(where map[string]origin, path string) origin {
	for path != "" {
		if o, ok := where[path]; ok {
			return o
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return origin{}
}

func reset(keys []key) {
	for _, k := range keys {
		k.value.reset()
	}
}

// mapping reads a map whose keys are known.
func (d *decoder) mapping(path string, n ast.Node, keys []key) {
	entries, ok := entriesOf(n)
	if !ok {
		d.failNode(n, path, "found %s, want a map with %s", rawOf(n), names(keys))
		return
	}
	given := map[string]bool{}
	for _, e := range entries {
		d.entry(join(path, e.name), e, keys, given)
	}
	for _, k := range keys {
		if k.required && !given[k.name] {
			d.failNode(n, join(path, k.name), "is missing; want %s", k.value.typeName())
		}
	}
}

func (d *decoder) entry(path string, e entry, keys []key, given map[string]bool) {
	k, known := find(keys, e.name)
	if !known {
		d.failNode(e.key, path, "unknown key; %s", suggestion(e.name, keys))
		return
	}
	if given[e.name] {
		d.failNode(e.key, path, "is given twice; the first is in line %d", d.where[path].line)
		return
	}
	given[e.name] = true
	null := rawOf(e.value).kind == isNull
	if null && d.nulls && !strings.Contains(path, ".") {
		given[e.name] = !k.required
		return
	}
	d.where[path] = originOf(e.value)
	before := len(d.mistakes)
	if null { // which has no place of its own
		d.failNode(e.key, path, "found nothing, want %s", k.value.typeName())
		return
	}
	k.value.decode(d, path, e.value)
	if c, ok := k.value.(changer); ok && len(d.mistakes) == before {
		now, changed := c.changed()
		d.refuseUnbuilt(originOf(e.value), path, now, changed)
	}
}

// entriesAnyName reads a map whose keys are the operator's own words.
func (d *decoder) entriesAnyName(path string, n ast.Node, want string, each func(path string, e entry)) {
	entries, ok := entriesOf(n)
	if !ok {
		d.failNode(n, path, "found %s, want %s", rawOf(n), want)
		return
	}
	for _, e := range entries {
		at := join(path, e.name)
		if first, twice := d.where[at]; twice {
			d.failNode(e.key, at, "is given twice; the first is in line %d", first.line)
			continue
		}
		d.where[at] = originOf(e.value)
		each(at, e)
	}
}

func find(keys []key, name string) (key, bool) {
	for _, k := range keys {
		if k.name == name {
			return k, true
		}
	}
	return key{}, false
}

func names(keys []key) string {
	all := make([]string, len(keys))
	for i, k := range keys {
		all[i] = k.name
	}
	return strings.Join(all, ", ")
}

// join adds a key to a path; a key with odd characters is quoted.
func join(path, name string) string {
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, isOdd) {
		name = quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

func isOdd(r rune) bool {
	return !(r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z')
}
