package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// schemas is a key with a map of lists of names. Which names are allowed is checked later.
type schemas struct{ into *map[string][]string }

func (s schemas) reset()              { *s.into = nil }
func (s schemas) typeName() string    { return "map of schemas to lists of their tables" }
func (s schemas) defaultText() string { return "{}" }

func (s schemas) shown() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(*s.into)) {
		all = append(all, name+": "+s.tables(new((*s.into)[name])).shown())
	}
	return "{" + strings.Join(all, ", ") + "}"
}

func (s schemas) tables(into *[]string) list[string] { return texts(into, nil, "table", freeText) }

func (s schemas) json() any {
	out := make(map[string][]string, len(*s.into))
	for name, tables := range *s.into {
		out[name] = append([]string{}, tables...)
	}
	return out
}

func (s schemas) decode(d *decoder, path string, n ast.Node) {
	found := map[string][]string{}
	d.entriesAnyName(path, n, "a "+s.typeName(), func(at string, e entry) {
		var tables []string
		s.tables(&tables).decode(d, at, e.value)
		found[e.name] = append([]string{}, tables...) // an empty list is not null
	})
	if len(found) > 0 {
		*s.into = found
	}
}
