package config

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestEveryFieldHasADocumentedKey(t *testing.T) {
	byPath := map[string]KeyDoc{}
	for _, k := range Keys() {
		if k.Doc == "" || k.Type == "" || k.Default == "" {
			t.Errorf("%s lacks a word: %+v", k.Path, k)
		}
		if _, twice := byPath[squeeze(k.Path)]; twice {
			t.Errorf("%s is documented twice", k.Path)
		}
		byPath[squeeze(k.Path)] = k
	}
	fields := fieldPaths(nil, "", reflect.TypeFor[Config]())
	for _, f := range fields {
		if _, ok := byPath[f]; !ok {
			t.Errorf("field %s has no key", f)
		}
		delete(byPath, f)
	}
	for path := range byPath {
		t.Errorf("key %s has no field", path)
	}
}

// squeeze makes a key's path comparable with a field's: providers[].base_url
// and Providers.BaseURL are both providers.baseurl.
func squeeze(path string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "[]", "").Replace(path))
}

// fieldPaths lists the fields that the file fills. Tools and Cache are values
// of one key, though structs in Go; so are an approval's mode and its default.
func fieldPaths(paths []string, path string, typ reflect.Type) []string {
	for f := range typ.Fields() {
		if !f.IsExported() || f.Name == "Warnings" || typ == reflect.TypeFor[Approval]() && f.Name == "Mode" {
			continue
		}
		at := squeeze(f.Name)
		if path != "" {
			at = path + "." + at
		}
		paths = append(paths, at)
		inner := f.Type
		for inner.Kind() == reflect.Slice || inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		local := inner.Kind() == reflect.Struct && inner.PkgPath() == reflect.TypeFor[Config]().PkgPath()
		if local && inner != reflect.TypeFor[Tools]() && inner != reflect.TypeFor[Cache]() {
			paths = fieldPaths(paths, at, inner)
		}
	}
	return paths
}

func TestKeyDocsSayWhatTheParserDoes(t *testing.T) {
	docs := map[string]KeyDoc{}
	for _, k := range Keys() {
		docs[k.Path] = k
	}
	for path, want := range map[string]KeyDoc{
		"listen":                           {Type: "host:port", Default: "127.0.0.1:8080", Env: "TURNPIKE_LISTEN"},
		"max_rounds_cap":                   {Type: "whole number (1..50)", Default: "50", Env: "TURNPIKE_MAX_ROUNDS_CAP"},
		"outbound.ssrf.block_ula_v6":       {Type: "true or false", Default: "true", Env: "TURNPIKE_OUTBOUND_SSRF_BLOCK_ULA_V6"},
		"outbound.ssrf.allowlist_cidrs":    {Type: "list of: CIDR such as 10.0.0.0/8", Default: "[]", Env: "TURNPIKE_OUTBOUND_SSRF_ALLOWLIST_CIDRS"},
		"orgs[].id":                        {Type: "name", Default: "required", Required: true},
		"orgs[].runtime.max_rounds":        {Type: "whole number (1..50)", Default: "the surface's own"},
		"orgs[].runtime.catalog_ttl":       {Type: "duration (0s..24h)", Default: "10m"},
		"orgs[].runtime.on_limit":          {Type: "stop or answer", Default: "the surface's own"},
		"orgs[].mcp_servers[].tools":       {Type: `"*" or list of tool names`, Default: `"*"`},
		"orgs[].mcp_servers[].max_retries": {Type: "whole number (0..10)", Default: "2"},
		"providers[].models":               {Type: "list of: model name or glob", Default: "[*]"},
	} {
		got := docs[path]
		got.Path, got.Doc = "", ""
		if got != want {
			t.Errorf("%s: got %+v, want %+v", path, got, want)
		}
	}
}

// The documentation marks what the parser refuses, and nothing else.
func TestKeyDocsMarkWhatIsNotBuilt(t *testing.T) {
	marked, unbuiltKinds := map[string]string{}, map[string]bool{}
	for _, k := range Keys() {
		if _, mark, found := strings.Cut(k.Doc, "Not built yet"); found {
			marked[k.Path] = mark
		}
	}
	const approval = "orgs[].mcp_servers[].require_approval"
	want := map[string]string{approval: ": any value but the default."}
	for _, inside := range []string{"always", "always.tool_names", "always.read_only", "never", "never.tool_names", "never.read_only"} {
		want[approval+"."+inside] = "."
	}
	for _, u := range notBuilt() {
		path := strings.TrimSuffix(u.key, "[]")
		switch {
		case u.value == anyOther:
			want[path] = ": any value but the default."
		case want[path] == "":
			want[path] = ": " + u.value + "."
		default:
			want[path] = strings.TrimSuffix(want[path], ".") + ", " + u.value + "."
		}
		if u.key == "providers[].kind" {
			unbuiltKinds[u.value] = true
		}
	}
	if diff := cmp.Diff(want, marked); diff != "" {
		t.Errorf("the marks are not what the parser refuses (-refused +marked):\n%s", diff)
	}
	for _, k := range Keys() {
		words := strings.Fields(strings.TrimPrefix(k.Doc, "Only for "))
		if kind := strings.Trim(words[0], ".,"); strings.HasPrefix(k.Path, "providers[].") && strings.HasPrefix(k.Doc, "Only for ") &&
			strings.Contains(k.Doc, "which is not built yet") != unbuiltKinds[kind] {
			t.Errorf("%s: %q, and the kind %s is not built: %v", k.Path, k.Doc, kind, unbuiltKinds[kind])
		}
	}
}

func TestDurationsReadLikeThoseOfTheFile(t *testing.T) {
	for want, d := range map[string]time.Duration{"0s": 0, "30s": 30 * time.Second, "2m": 2 * time.Minute, "1h": time.Hour, "1h5m": 65 * time.Minute, "1m10s": 70 * time.Second, "10m": 10 * time.Minute} {
		if got := showDuration(d); got != want {
			t.Errorf("%v reads %s, want %s", d, got, want)
		}
	}
}
