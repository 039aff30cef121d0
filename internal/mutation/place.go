package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// source is the module's own code: every declaration at package level, and the package of
// every test.
type source struct {
	declarations map[string][]declaration // by name: Decide, State.failAttempt, renewEvery
	tests        map[string][]string      // directories, by the name of the test
}

// declaration is the text of one function, constant or variable.
type declaration struct {
	path       string // of its file
	start, end int    // its bytes in the file
	text       []byte // of the whole file
}

// readSource reads the code below root/internal.
func readSource(root string) (source, error) {
	s := source{declarations: map[string][]declaration{}, tests: map[string][]string{}}
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		return s.readFile(path)
	})
	return s, err
}

func (s source) readFile(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	add := func(name string, n ast.Node) {
		if strings.HasSuffix(path, "_test.go") {
			s.tests[name] = append(s.tests[name], filepath.Dir(path))
			return
		}
		s.declarations[name] = append(s.declarations[name], declaration{
			path: path, start: files.Position(n.Pos()).Offset, end: files.Position(n.End()).Offset, text: text,
		})
	}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			add(receiver(d)+d.Name.Name, d)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if values, ok := spec.(*ast.ValueSpec); ok {
					add(values.Names[0].Name, values)
				}
			}
		}
	}
	return nil
}

// receiver returns "Type." for a method of Type, "" for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	t := f.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr: // a type parameter
			t = x.X
		case *ast.Ident:
			return x.Name + "."
		default:
			return ""
		}
	}
}

// apply returns the file of the mutation's place, and its text with the mistake in it.
func (s source) apply(m mutation) (path string, changed []byte, err error) {
	found := 0
	for _, d := range s.declarations[m.In] {
		for _, at := range d.find(m.From) {
			found++
			path = d.path
			changed = bytes.Join([][]byte{d.text[:at.start], d.text[at.end:]}, []byte(m.To))
		}
	}
	if found != 1 {
		return "", nil, fmt.Errorf("mutation %q: its text occurs %d times in %s, want once:\n%s", m.Name, found, m.In, m.From)
	}
	return path, changed, nil
}

// packageOf returns the directory of the mutation's test.
func (s source) packageOf(m mutation) (string, error) {
	dirs := s.tests[m.Test]
	if len(dirs) != 1 {
		return "", fmt.Errorf("mutation %q: %d tests have the name %s, want one", m.Name, len(dirs), m.Test)
	}
	return dirs[0], nil
}

// span is a range of bytes.
type span struct{ start, end int }

// find returns the places of text in the declaration: equal tokens, or, if there are none, a part
// of a string literal, such as SQL.
func (d declaration) find(text string) []span {
	body := d.text[d.start:d.end]
	have, want := tokens(body), tokens([]byte(text))
	var places []span
	for i := range have {
		if n := i + len(want); n <= len(have) && sameTokens(have[i:n], want) {
			places = append(places, span{d.start + have[i].start, d.start + have[n-1].end})
		}
	}
	if places != nil {
		return places
	}
	for _, t := range have {
		if t.kind != token.STRING {
			continue
		}
		literal := body[t.start:t.end]
		for from := 0; ; {
			i := bytes.Index(literal[from:], []byte(text))
			if i < 0 {
				break
			}
			start := d.start + t.start + from + i
			places = append(places, span{start, start + len(text)})
			from += i + len(text)
		}
	}
	return places
}

// lexeme is a token and its bytes.
type lexeme struct {
	kind token.Token
	text string
	span
}

// tokens returns the tokens of a piece of Go, without comments and semicolons.
func tokens(text []byte) []lexeme {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(text))
	s.Init(file, text, func(token.Position, string) {}, 0) // a part of a literal is no Go
	var all []lexeme
	for {
		pos, kind, literal := s.Scan()
		switch kind {
		case token.EOF:
			return all
		case token.SEMICOLON:
			continue
		}
		if literal == "" {
			literal = kind.String()
		}
		start := file.Offset(pos)
		all = append(all, lexeme{kind: kind, text: literal, span: span{start, start + len(literal)}})
	}
}

func sameTokens(a, b []lexeme) bool {
	for i := range a {
		if a[i].kind != b[i].kind || a[i].text != b[i].text {
			return false
		}
	}
	return len(a) > 0
}
