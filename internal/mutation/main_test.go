package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"testing"
)

// A mutation whose text has moved on would say nothing.
func TestEveryMutationFitsTheSource(t *testing.T) {
	root, err := rootDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range mutations() {
		if seen[m.Name] || m.Name == "" || m.Why == "" {
			t.Errorf("mutation %q: its name is taken or empty, or it has no reason", m.Name)
		}
		seen[m.Name] = true
		changed, err := m.apply(root)
		if err != nil {
			t.Error(err)
			continue
		}
		if m.From == m.To {
			t.Errorf("mutation %q changes nothing", m.Name)
		}
		if _, err := parser.ParseFile(token.NewFileSet(), m.File, changed, parser.SkipObjectResolution); err != nil {
			t.Errorf("mutation %q: %v", m.Name, err)
		}
		if !namesATest(t, filepath.Join(root, m.Package), m.Test) {
			t.Errorf("mutation %q: no test of %s has the name %s", m.Name, m.Package, m.Test)
		}
	}
}

func namesATest(t *testing.T, dir, pattern string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(pattern)
	for _, path := range files {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for object := range topLevel(f) {
			if name.MatchString(object) {
				return true
			}
		}
	}
	return false
}

func TestASampleIsTheSameForACommit(t *testing.T) {
	all := []mutation{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}}
	first := some(append([]mutation(nil), all...), 2, "x")
	again := some([]mutation{all[4], all[2], all[0], all[1], all[3]}, 2, "x")
	if len(first) != 2 || first[0].Name != again[0].Name || first[1].Name != again[1].Name {
		t.Errorf("%v and %v", first, again)
	}
	if n := len(choose(all, []string{"b", "d"})); n != 2 {
		t.Errorf("%d chosen, want 2", n)
	}
}

// topLevel returns the names of the file's functions.
func topLevel(f *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
			names[fn.Name.Name] = true
		}
	}
	return names
}
