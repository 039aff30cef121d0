package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, p := range listPackages(t) {
		if len(p.GoFiles) == 0 {
			continue
		}
		docs := 0
		for _, file := range parse(t, p) {
			if file.ast.Doc != nil && strings.TrimSpace(file.ast.Doc.Text()) != "" {
				docs++
			}
		}
		switch docs {
		case 1:
		case 0:
			t.Errorf("package %s has no comment: say what it is for, above the package clause of one file", p.name())
		default:
			t.Errorf("package %s says in %d files what it is for: say it once", p.name(), docs)
		}
	}
}

func TestEveryPublicNameHasAComment(t *testing.T) {
	for _, p := range publicPackages(t) {
		for _, file := range parse(t, p) {
			for _, decl := range file.ast.Decls {
				for _, name := range undocumented(decl) {
					t.Errorf("%s: %s is public and has no comment: say what it is, its unit, its limits, its zero value", file.at(decl), name)
				}
			}
		}
	}
}

// publicPackages are those that other modules can import.
func publicPackages(t *testing.T) []goPackage {
	t.Helper()
	private := []string{"internal/...", "cmd/...", "bench/...", "docs"}
	return slices.DeleteFunc(listPackages(t), func(p goPackage) bool { return matches(private, p.name()) })
}

// undocumented returns the exported names of a declaration that no comment is
// about. A comment on a group of constants or variables serves all of them.
func undocumented(decl ast.Decl) []string {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
			return []string{d.Name.Name}
		}
	case *ast.GenDecl:
		var names []string
		for _, spec := range d.Specs {
			names = append(names, undocumentedSpec(spec, d.Doc)...)
		}
		return names
	}
	return nil
}

// exportedReceiver reports whether d is a function, or a method that a user of
// the package can reach.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if index, ok := t.(*ast.IndexExpr); ok {
		t = index.X
	}
	id, ok := t.(*ast.Ident)
	return !ok || id.IsExported() && !wellKnown(d.Name.Name)
}

// wellKnown methods need no comment: their interface has one.
func wellKnown(method string) bool {
	switch method {
	case "Error", "String", "Unwrap", "MarshalJSON", "UnmarshalJSON":
		return true
	}
	return false
}

func undocumentedSpec(spec ast.Spec, group *ast.CommentGroup) []string {
	var names []string
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if s.Name.IsExported() && s.Doc == nil && group == nil {
			names = append(names, s.Name.Name)
		}
		if i, ok := s.Type.(*ast.InterfaceType); ok && s.Name.IsExported() {
			names = append(names, undocumentedMethods(s.Name.Name, i)...)
		}
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if name.IsExported() && s.Doc == nil && s.Comment == nil && group == nil {
				names = append(names, name.Name)
			}
		}
	}
	return names
}

// undocumentedMethods are those of an interface: whoever implements it has
// nothing but their comments to go by. An interface with one method says it in
// its own comment.
func undocumentedMethods(typeName string, i *ast.InterfaceType) []string {
	var names []string
	for _, m := range i.Methods.List {
		if len(m.Names) == 1 && m.Names[0].IsExported() && m.Doc == nil && m.Comment == nil && len(i.Methods.List) > 1 {
			names = append(names, fmt.Sprintf("method %s of %s", m.Names[0].Name, typeName))
		}
	}
	return names
}

// suites are packages of tests whose files are not called _test.go.
func suites() []string {
	return []string{"internal/provider/providertest", "internal/store/storetest"}
}

// Ids of the checklist, such as P24, name what a test proves. Code says in words
// what it does.
func TestCommentsPointToNothingOutsideTheRepository(t *testing.T) {
	elsewhere := regexp.MustCompile(`\breference/[a-z]+|\bDESIGN\b|\bCHECKLIST\b`)
	id := regexp.MustCompile(`\b[A-Z][0-9]{2}\b`)
	found := map[string][]string{} // by directory
	for path, file := range goFiles(t) {
		dir := filepath.ToSlash(filepath.Dir(path))
		isTest := strings.HasSuffix(path, "_test.go") || slices.Contains(suites(), dir)
		for _, group := range file.ast.Comments {
			for _, c := range group.List {
				if name := elsewhere.FindString(c.Text); name != "" {
					found[dir] = append(found[dir], fmt.Sprintf("%s: %s is not in the repository: give the reason instead", file.at(c), name))
				} else if name := id.FindString(c.Text); name != "" && !isTest {
					found[dir] = append(found[dir], fmt.Sprintf("%s: the checklist id %s belongs to the test that proves it", file.at(c), name))
				}
			}
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(found)) {
		t.Error(strings.Join(found[dir], "\n"))
	}
}

// goFiles returns all Go files of the repository, whatever their build tags, by
// their paths from its root.
func goFiles(t *testing.T) map[string]parsedFile {
	t.Helper()
	root, files := moduleRoot(t), map[string]parsedFile{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || filepath.Ext(name) != ".go":
			return nil
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		files[rel] = parsedFile{rel, file, set}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
