package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/turnpike-gateway/turnpike/internal/spelling"
)

// key is one line of the table that describes the file.
type key struct {
	name       string
	value      value
	env        string // the variable that overrides it
	required   bool
	live       bool   // a change can be applied while the gateway serves; so can changes of the keys inside
	identifies bool   // together with the first key, the key identifies the item of a list that it is in
	presence   bool   // the key changes something even if every key inside has its default
	fileOnly   string // why the management API does not have the key; "" = it does, if it has the keys around it
	unbuilt    unbuilt
	doc        string
}

// value is where a key's content goes.
type value interface {
	reset()                                     // puts the default in
	decode(d *decoder, path string, n ast.Node) // reads n over it, or reports why not
	typeName() string                           // for the documentation
	defaultText() string
}

// leaf is a value without keys of its own.
type leaf interface {
	value
	json() any     // as the file writes it, with its credentials
	shown() string // the same for a log: without credentials
}

// changer is a value that may not be built yet: see unbuilt.
type changer interface {
	changed() (now string, yes bool) // the value as text, and whether it differs from the default
}

// unbuilt are values of a key that the file may hold and that this version refuses.
// The zero value is none.
type unbuilt struct {
	values  []string // words of the key; nil = any value but the default
	instead string   // what to write; never empty
}

// decoder reads one file. It goes on after a mistake, so that all are found.
type decoder struct {
	file     string
	dir      string // of the file; "" = it is the working directory, or there is no file
	mistakes []Mistake
	warnings []Mistake
	where    map[string]origin // the values that were given, by path
	storage  Storage

	// Of a part that is read by itself, see part.go:
	nulls bool // null gives a key of the part its default
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
		d.failNode(n, path, "found %s, want a map with %s", rawOf(n), strings.Join(names(keys), ", "))
		return
	}
	given := map[string]bool{}
	for _, e := range entries {
		d.entry(path, e, keys, given)
	}
	for _, k := range keys {
		if k.required && !given[k.name] {
			d.failNode(n, join(path, k.name), "is missing; want %s", k.value.typeName())
		}
	}
}

// entry reads one line of the map at within. given holds the keys that were read
// before.
func (d *decoder) entry(within string, e entry, keys []key, given map[string]bool) {
	k, known := find(keys, e.name)
	if !known {
		d.failNode(e.key, join(within, e.name), "unknown key; %s", suggestion(e.name, keys))
		return
	}
	path := join(within, k.name)
	if given[k.name] {
		d.failNode(e.key, path, "is given twice; the first is in line %d", d.where[path].line)
		return
	}
	given[k.name] = true
	null := rawOf(e.value).kind == isNull
	if null && d.nulls && within == "" {
		if k.required {
			delete(given, k.name)
		}
		return
	}
	d.where[path] = originOf(e.value)
	d.valueOf(path, e, k)
}

// valueOf reads the value of the key k, whose path is path.
func (d *decoder) valueOf(path string, e entry, k key) {
	before := len(d.mistakes)
	if rawOf(e.value).kind == isNull { // which has no place of its own
		d.failNode(e.key, path, "found nothing, want %s", k.value.typeName())
	} else {
		k.value.decode(d, path, e.value)
	}
	if len(d.mistakes) == before {
		d.refuseUnbuilt(path, k)
	}
}

// refuseUnbuilt reports the value of a key, or the items of its list, that are not
// built yet.
func (d *decoder) refuseUnbuilt(path string, k key) {
	if k.unbuilt.instead == "" {
		return
	}
	if l, ok := k.value.(list[string]); ok {
		for i, item := range *l.into {
			if at := fmt.Sprintf("%s[%d]", path, i); slices.Contains(k.unbuilt.values, item) {
				d.failPath(at, "%s is not built yet in this version; %s", item, k.unbuilt.instead)
			}
		}
		return
	}
	now, changed := k.value.(changer).changed()
	switch {
	case k.unbuilt.values == nil && changed:
		d.failPath(path, "a value other than the default is not built yet in this version; %s", k.unbuilt.instead)
	case slices.Contains(k.unbuilt.values, now):
		d.failPath(path, "%s is not built yet in this version; %s", now, k.unbuilt.instead)
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

// find returns the key that is called name.
func find(keys []key, name string) (key, bool) {
	for _, k := range keys {
		if k.name == name {
			return k, true
		}
	}
	return key{}, false
}

func names(keys []key) []string {
	all := make([]string, len(keys))
	for i, k := range keys {
		all[i] = k.name
	}
	return all
}

// suggestion helps with a key that is not known: the one that was probably
// meant, or all that could be.
func suggestion(name string, keys []key) string {
	known := names(keys)
	if nearest := spelling.Nearest(name, known); nearest != "" {
		return "did you mean " + nearest + "?"
	}
	return "known here: " + strings.Join(known, ", ")
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
