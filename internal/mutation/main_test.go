package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A mutation whose text has moved on would say nothing.
func TestEveryMutationFitsTheSource(t *testing.T) {
	root, err := rootDir(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	code, err := readSource(root)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, m := range mutations() {
		if seen[m.Name] || m.Name == "" || m.Why == "" {
			t.Errorf("mutation %q: its name is taken or empty, or it has no reason", m.Name)
		}
		seen[m.Name] = true
		if _, err := code.packageOf(m); err != nil {
			t.Error(err)
		}
		path, changed, err := code.apply(m)
		if err != nil {
			t.Error(err)
			continue
		}
		if m.From == m.To {
			t.Errorf("mutation %q changes nothing", m.Name)
		}
		if _, err := parser.ParseFile(token.NewFileSet(), path, changed, parser.SkipObjectResolution); err != nil {
			t.Errorf("mutation %q: %v", m.Name, err)
		}
	}
}

func TestAPlaceIsFoundByTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.go")
	text := "package a\n\nfunc (s *S[T]) f() {\n\tif a(1,\n\t\t2) { // why\n\t\treturn\n\t}\n\tq(`WHERE a AND b`)\n\tg()\n\tg()\n}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	code := source{declarations: map[string][]declaration{}}
	if err := code.readFile(file); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ in, from, to, want string }{
		{"S.f", "if a(1, 2) { return }", "", "func (s *S[T]) f() {\n\t\n\tq("},
		{"S.f", " AND b", "", "q(`WHERE a`)"},
		{"S.f", "g()", "", ""},   // twice
		{"S.f", "h()", "", ""},   // nowhere
		{"f", "a(1, 2)", "", ""}, // no such function
	} {
		_, changed, err := code.apply(mutation{In: c.in, From: c.from, To: c.to})
		if (err == nil) != (c.want != "") || !strings.Contains(string(changed), c.want) {
			t.Errorf("%q in %s: %v\n%s", c.from, c.in, err, changed)
		}
	}
}

func TestMutationsAreChosenByTheirNames(t *testing.T) {
	all := []mutation{{Name: "a"}, {Name: "b"}, {Name: "c"}, {Name: "d"}, {Name: "e"}}
	if n := len(choose(all, []string{"b", "d"})); n != 2 {
		t.Errorf("%d chosen, want 2", n)
	}
}
