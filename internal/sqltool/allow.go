package sqltool

import (
	"maps"
	"slices"
	"strings"
)

// allowList are schemas and tables, such as public and public.orders. Empty = all of a file of SQLite.
type allowList []string

// assigned returns the schemas of an assignment as a list; nil = it has no limit.
func assigned(schemas map[string][]string) (out []string) {
	for _, schema := range slices.Sorted(maps.Keys(schemas)) {
		if len(schemas[schema]) == 0 {
			out = append(out, schema)
		}
		for _, table := range schemas[schema] {
			out = append(out, schema+"."+table)
		}
	}
	return out
}

// allowed returns the list of an assignment within the list of the database. Both lists hold: what the assignment
// names beyond the database is left out.
func allowed(database, assigned []string) allowList {
	if assigned == nil {
		return database
	}
	out := allowList{}
	for _, item := range assigned {
		schema, table, one := strings.Cut(item, ".")
		switch own := allowList(database); {
		case one && own.has(schema, table), !one && slices.Contains(own, schema):
			out = append(out, item)
		case !one: // its tables that the database allows
			for _, t := range own {
				if strings.HasPrefix(t, schema+".") {
					out = append(out, t)
				}
			}
		}
	}
	return out
}

// has reports whether statements may use the table.
func (a allowList) has(schema, table string) bool {
	return slices.Contains(a, schema) || slices.Contains(a, schema+"."+table)
}

// hasSchema reports whether statements may use some table of the schema.
func (a allowList) hasSchema(schema string) bool { return slices.Contains(a.schemas(), schema) }

// schemas returns the schemas in the order of the list.
func (a allowList) schemas() (out []string) {
	for _, item := range a {
		if schema, _, _ := strings.Cut(item, "."); !slices.Contains(out, schema) {
			out = append(out, schema)
		}
	}
	return out
}

// String returns the list for a message.
func (a allowList) String() string {
	if len(a) == 0 {
		return "none"
	}
	return strings.Join(a, ", ")
}
