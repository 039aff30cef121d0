// Starters prints the tests that start programs, as arguments of go test: for each package of a module that has such
// tests, a line with its directory and the pattern for -run.
//
//	starters .                  the module in the current directory
//	starters -calls LookPath .  only tests that look for a program in PATH
//
// A test starts programs if its code, or a function or method that it names in its package, does so with os/exec or
// os, or if it configures an MCP server with a command. Code in other packages is not read.
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	calls := flag.String("calls", "LookPath,Command,CommandContext,StartProcess", "comma-separated `functions` of os/exec and os")
	flag.Parse()
	if err := list(os.Stdout, flag.Arg(0), strings.Split(*calls, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "starters:", err)
		os.Exit(1)
	}
}

// list prints a line for each package below root whose tests start programs.
func list(out io.Writer, root string, calls []string) error {
	return filepath.WalkDir(root, func(dir string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if dir != root && otherModule(dir, d.Name()) {
			return filepath.SkipDir
		}
		tests, err := starters(dir, calls)
		if err != nil || len(tests) == 0 {
			return err
		}
		_, err = fmt.Fprintf(out, "./%s ^(%s)$\n", filepath.ToSlash(dir), strings.Join(tests, "|"))
		return err
	})
}

// otherModule reports whether go test ./... does not look into the directory.
func otherModule(dir, name string) bool {
	if name == "testdata" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// starters returns the tests of one directory that start programs, sorted.
func starters(dir string, calls []string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	fset, packages := token.NewFileSet(), map[string][]*ast.File{}
	for _, file := range files {
		f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		packages[f.Name.Name] = append(packages[f.Name.Name], f)
	}
	var tests []string
	for name, files := range packages {
		tests = append(tests, graph(fset, name, files).starting(calls)...)
	}
	slices.Sort(tests)
	return tests, nil
}

// function is a function or method and what it names.
type function struct {
	decl *ast.FuncDecl
	uses map[types.Object]bool
}

type functions map[types.Object]function

// graph returns the functions of a package. Imports are not read: what a function names in its own package is known
// without them.
func graph(fset *token.FileSet, name string, files []*ast.File) functions {
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: noImports{}, Error: func(error) {}}
	_, _ = config.Check(name, fset, files, info) // its errors are about the imports
	all := functions{}
	for _, file := range files {
		for _, d := range file.Decls {
			decl, ok := d.(*ast.FuncDecl)
			if !ok || decl.Body == nil {
				continue
			}
			f := function{decl, map[types.Object]bool{}}
			ast.Inspect(decl.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && info.Uses[id] != nil {
					f.uses[info.Uses[id]] = true
				}
				return true
			})
			all[info.Defs[decl.Name]] = f
		}
	}
	return all
}

// noImports has no package.
type noImports struct{}

// Import implements types.Importer.
func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not read") }

// starting returns the names of the tests that reach one of the calls.
func (all functions) starting(calls []string) []string {
	starts := map[types.Object]bool{}
	for o, f := range all {
		if f.startsItself(calls) {
			starts[o] = true
		}
	}
	for before := -1; before < len(starts); {
		before = len(starts)
		for o, f := range all {
			for used := range f.uses {
				if starts[used] {
					starts[o] = true
				}
			}
		}
	}
	var names []string
	for o := range starts {
		if name := o.Name(); strings.HasPrefix(name, "Test") && name != "TestMain" {
			names = append(names, name)
		}
	}
	return names
}

// startsItself reports whether the function's own code starts a program.
func (f function) startsItself(calls []string) bool {
	found := false
	ast.Inspect(f.decl.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			found = found || ok && (x.Name == "exec" || x.Name == "os") && slices.Contains(calls, n.Sel.Name)
		case *ast.BasicLit:
			found = found || n.Kind == token.STRING && strings.Contains(n.Value, "command: [") && slices.Contains(calls, "Command")
		}
		return true
	})
	return found
}
