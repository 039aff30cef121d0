package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/audit"
)

// The audit page has a row for each kind of audit row, with all members of its
// body as the code writes them.
func TestTheAuditPageListsEveryKindAndMember(t *testing.T) {
	page := read(t, "docs/audit.md")
	bodies := bodiesOfKinds(t)
	for _, kind := range audit.Kinds() {
		row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(string(kind)) + "` \\|[^|]*\\|([^|]*)\\|$").FindStringSubmatch(page)
		if row == nil {
			t.Errorf("docs/audit.md does not list %s", kind)
			continue
		}
		var listed []string
		for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(row[1], -1) {
			listed = append(listed, m[1])
		}
		want := bodies[string(kind)]
		slices.Sort(listed)
		slices.Sort(want)
		if len(want) == 0 || !slices.Equal(listed, want) {
			t.Errorf("%s has the members %q, and docs/audit.md lists %q", kind, want, listed)
		}
	}
}

// bodiesOfKinds reads audit.go: the comment of each kind names the type of its
// body.
func bodiesOfKinds(t *testing.T) map[string][]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "internal", "audit", "audit.go"), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	members, bodies := map[string][]string{}, map[string][]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if s, ok := spec.Type.(*ast.StructType); ok {
				members[spec.Name.Name] = membersOf(s)
			}
		}
		return true
	})
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || spec.Comment == nil {
			return true
		}
		body := regexp.MustCompile(`Body is an? (\w+)`).FindStringSubmatch(spec.Comment.Text())
		if kind, ok := literal(spec.Values[0]); ok && body != nil {
			bodies[kind] = members[body[1]]
		}
		return true
	})
	return bodies
}

// membersOf returns the names of a struct's members in JSON.
func membersOf(s *ast.StructType) (names []string) {
	for _, f := range s.Fields.List {
		if f.Tag == nil {
			continue
		}
		name, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
		if name != "-" { // it is not written
			names = append(names, name)
		}
	}
	return names
}
