package config

import "strings"

// unbuilt is a value that the file may hold and this version cannot serve.
type unbuilt struct {
	key     string // as in Keys
	value   string // as the file says it; anyOther for all but the default
	instead string
}

const anyOther = "*"

// notBuilt lists what is parsed and refused. A feature that arrives deletes
// its line.
func notBuilt() []unbuilt {
	const (
		server = "orgs[].mcp_servers[]."
		drop   = "leave it out or set it to "
	)
	return []unbuilt{
		{"database", anyOther, drop + `""`},
		{"redis", anyOther, drop + `""`},
		{"clickhouse", anyOther, drop + `""`},
		{"rates", anyOther, drop + `""`},
		{"providers[].kind", "openai-responses", "set it to openai or demo"},
		{"providers[].kind", "anthropic", "set it to openai or demo"},
		{"providers[].kind", "gemini", "set it to openai or demo"},
		{"providers[].kind", "bedrock", "set it to openai or demo"},
		{"providers[].kind", "sglang", "set it to openai or demo"},
		{"providers[].kind", "vllm", "set it to openai or demo"},
		{"orgs[].runtime.extensions[]", "trace", drop + "[]"},
		{"orgs[].runtime.extensions[]", "progress", drop + "[]"},
		{"orgs[].runtime.extensions[]", "files", drop + "[]"},
		{"orgs[].runtime.extensions[]", "session", drop + "[]"},
		{"orgs[].runtime.extensions[]", "cost", drop + "[]"},
		{server + "require_approval", anyOther, drop + "never"},
	}
}

// unbuiltText says for the documentation which values of the key are not built
// yet; empty for none. What is inside a key that is not built is not built either.
func unbuiltText(key string) string {
	var values []string
	for _, u := range notBuilt() {
		switch {
		case u.value == anyOther && u.key == key:
			return " Not built yet: any value but the default."
		case u.value == anyOther && strings.HasPrefix(key, u.key+"."):
			return " Not built yet."
		case strings.TrimSuffix(u.key, "[]") == key:
			values = append(values, u.value)
		}
	}
	if len(values) == 0 {
		return ""
	}
	return " Not built yet: " + strings.Join(values, ", ") + "."
}

// refuseUnbuilt reports a value that is not built yet.
func (d *decoder) refuseUnbuilt(o origin, path, value string, changed bool) {
	pattern := d.within + docPath(path)
	for _, u := range notBuilt() {
		switch {
		case u.key != pattern:
		case u.value == anyOther && changed:
			d.fail(o, path, "a value other than the default is not built yet in this version; %s", u.instead)
		case u.value == value:
			d.fail(o, path, "%s is not built yet in this version; %s", value, u.instead)
		}
	}
}

// docPath turns the path of a value into the path of its documentation:
// orgs[0].id into orgs[].id.
func docPath(path string) string {
	var b strings.Builder
	index := false // inside [0]
	for i := range len(path) {
		index = index && path[i] != ']'
		if !index {
			b.WriteByte(path[i])
		}
		index = index || path[i] == '['
	}
	return b.String()
}
