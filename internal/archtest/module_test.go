package archtest

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// modulePath is what every import path of the project begins with.
const modulePath = "github.com/turnpike-gateway/turnpike"

// goPackage is what "go list" says of a package.
type goPackage struct {
	ImportPath   string
	Dir          string
	Standard     bool
	Export       string // the file with its compiled declarations; only from exported
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
}

// name returns the import path within the module, "." for the root.
func (p goPackage) name() string { return inModule(p.ImportPath) }

func inModule(importPath string) string {
	if importPath == modulePath {
		return "."
	}
	return strings.TrimPrefix(importPath, modulePath+"/")
}

// isOurs reports whether the import path is one of the module.
func isOurs(importPath string) bool {
	return importPath == modulePath || strings.HasPrefix(importPath, modulePath+"/")
}

// moduleRoot returns the directory that holds go.mod.
func moduleRoot(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; filepath.Dir(dir) != dir; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("no go.mod in this directory or above it")
	return ""
}

// The packages and their files are read once for all tests, which run one after the other.
var (
	listed []goPackage
	parsed = map[string][]parsedFile{} // by import path
)

// listPackages returns all packages of the module; those that consist of tests
// alone are among them.
func listPackages(t testing.TB) []goPackage {
	t.Helper()
	if listed == nil {
		listed = goList(t, "./...")
	}
	return slices.Clone(listed)
}

// goList returns what "go list -json" says about its arguments.
func goList(t testing.TB, args ...string) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-json=ImportPath,Dir,Standard,Export,GoFiles,TestGoFiles,XTestGoFiles,Imports"}, args...)...)
	cmd.Dir = moduleRoot(t)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	var packages []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		packages = append(packages, p)
	}
}

// parsedFile is one file of a package, without its tests.
type parsedFile struct {
	path string // from the module's root, with slashes
	ast  *ast.File
	set  *token.FileSet
}

// at returns where a node stands, as file:line.
func (f parsedFile) at(n ast.Node) string {
	return f.path + ":" + strings.TrimPrefix(f.set.Position(n.Pos()).String(), f.set.Position(f.ast.FileStart).Filename+":")
}

// parse returns the files of p that are no tests, with their comments.
func parse(t testing.TB, p goPackage) []parsedFile {
	t.Helper()
	if files, ok := parsed[p.ImportPath]; ok {
		return files
	}
	root := moduleRoot(t)
	files := make([]parsedFile, len(p.GoFiles))
	for i, name := range p.GoFiles {
		full := filepath.Join(p.Dir, name)
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, full, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		path, err := filepath.Rel(root, full)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = parsedFile{filepath.ToSlash(path), file, set}
	}
	parsed[p.ImportPath] = files
	return files
}
