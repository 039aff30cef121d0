package archtest

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// pure are the packages that know the rules of a run.
func pure() []string {
	return []string{"internal/money", "internal/budget", "internal/policy", "internal/window", "internal/loop"}
}

// harmless are the standard packages that the rules may import: they compute.
// A package that is missing here and only computes, too, can be added.
func harmless() []string {
	return []string{
		"bytes", "cmp", "container/heap", "crypto/sha256", "encoding/base64", "encoding/hex", "encoding/json",
		"errors", "fmt", "hash", "hash/fnv", "iter", "maps", "math", "math/bits", "path", "reflect", "regexp", "slices", "sort", "strconv",
		"strings", "unicode", "unicode/utf8",
	}
}

// whyNot says what is wrong with a standard package that the rules must not
// use; empty for the harmless ones. It also judges what they call.
func whyNot(path string) string {
	switch first, _, _ := strings.Cut(path, "/"); {
	case slices.Contains(harmless(), path):
		return ""
	case path == "time":
		return "the rules do not read clocks: time enters as the At of facts and as the fact Expired"
	case path == "context":
		return "the rules cannot be cancelled: they return at once, and the end of a caller is a fact"
	case strings.HasPrefix(path, "math/rand"), path == "crypto/rand":
		return "the rules draw no random numbers: the driver draws, and writes into a fact what it drew"
	case first == "sync":
		return "the rules share nothing: a State is a value, owned by one goroutine"
	case first == "log":
		return "the rules do not log: the journal tells what was decided, and why"
	case first == "net", first == "os", first == "io", first == "bufio", first == "syscall", first == "database", first == "embed", first == "plugin":
		return "the rules do no I/O: they say what is to be done, and the driver does it"
	case path == "runtime", first == "runtime", path == "unsafe", path == "C":
		return "the rules know nothing of the machine that they run on"
	}
	return "it is not among the packages that the rules are known to be safe with; if it only computes, add it to harmless"
}

// No surface, clock or network decides, because the rules import none. // A05
func TestTheRulesImportNothingThatReadsClocksOrDoesIO(t *testing.T) {
	for _, p := range rules(t) {
		for _, path := range p.Imports {
			if !isOurs(path) && whyNot(path) != "" {
				t.Errorf("%s imports %s: %s", p.name(), path, whyNot(path))
			}
		}
	}
}

// The vocabulary has fields of type time.Time, so what it imports proves little. What counts is that no function of it, and none of the
// rules, calls anything that reads a clock or does I/O.
func TestTheRulesAndTheirVocabularyCallNothingThatReadsClocksOrDoesIO(t *testing.T) {
	load := newLoader(t, "./internal/loop", "./internal/window", "./event")
	for _, p := range append(rules(t), vocabulary(t)...) {
		for id, object := range load.check(t, p).Uses {
			f, ok := object.(*types.Func)
			at := load.set.Position(id.Pos())
			if !ok || f.Pkg() == nil || isOurs(f.Pkg().Path()) || executes(at.Filename) {
				continue
			}
			if why := whyNot(f.Pkg().Path()); why != "" && !onlyComputes(f) {
				t.Errorf("%s: calls %s: %s", at, f.FullName(), why)
			}
		}
	}
}

// executes reports whether the file of package tool executes calls of tools, for programs that make
// tools of their functions. The rules use none of it: see the next test.
func executes(file string) bool {
	dir, name := filepath.Split(file)
	return filepath.Base(dir) == "tool" && slices.Contains([]string{"caller.go", "func.go"}, name)
}

func TestTheRulesExecuteNoTools(t *testing.T) {
	load := newLoader(t, "./internal/loop", "./internal/window", "./event")
	for _, p := range rules(t) {
		for id, object := range load.check(t, p).Uses {
			f, ok := object.(*types.Func)
			if ok && f.Pkg() != nil && isOurs(f.Pkg().Path()) && inModule(f.Pkg().Path()) == "tool" && f.Signature().Recv() == nil {
				t.Errorf("%s: calls %s: the rules take what a tool is from its package, and nothing that executes one", load.set.Position(id.Pos()), f.FullName())
			}
		}
	}
}

// onlyComputes reports whether f reads nothing but its arguments, although its package can do more: a method of times, or time.UnixMilli.
func onlyComputes(f *types.Func) bool {
	receiver := f.Signature().Recv()
	if receiver == nil {
		return f.FullName() == "time.UnixMilli"
	}
	switch types.TypeString(receiver.Type(), nil) {
	case "time.Time", "*time.Time", "time.Duration":
		return true
	}
	return false
}

func TestTheRulesStartNothingAndWaitForNothing(t *testing.T) {
	for _, p := range rules(t) {
		for _, file := range parse(t, p) {
			ast.Inspect(file.ast, func(n ast.Node) bool {
				if what := concurrent(n); what != "" {
					t.Errorf("%s: %s in the rules: they are a function of a State, and whoever calls them waits", file.at(n), what)
				}
				return true
			})
		}
	}
}

func concurrent(n ast.Node) string {
	switch n := n.(type) {
	case *ast.GoStmt:
		return "a goroutine"
	case *ast.SelectStmt, *ast.SendStmt, *ast.ChanType:
		return "a channel"
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			return "a channel"
		}
	}
	return ""
}

func rules(t *testing.T) []goPackage { return named(t, pure()) }

func vocabulary(t *testing.T) []goPackage {
	return named(t, []string{"item", "tool", "model", "event"})
}

func named(t *testing.T, names []string) []goPackage {
	t.Helper()
	all := listPackages(t)
	found := slices.DeleteFunc(all, func(p goPackage) bool { return !slices.Contains(names, p.name()) })
	if len(found) == 0 {
		t.Fatalf("none of the packages %s is there any more: this test checks nothing", strings.Join(names, ", "))
	}
	return found
}

// loader type-checks packages from source; what they import comes compiled.
type loader struct {
	set *token.FileSet
	imp types.Importer
}

// newLoader returns a loader for packages that import no others than those that match the
// patterns import.
func newLoader(t *testing.T, patterns ...string) loader {
	t.Helper()
	compiled := map[string]string{}
	for _, p := range goList(t, append([]string{"-export", "-deps"}, patterns...)...) {
		compiled[p.ImportPath] = p.Export
	}
	set := token.NewFileSet()
	return loader{set, importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) {
		if compiled[path] == "" {
			return nil, fmt.Errorf("no compiled declarations of %s", path)
		}
		return os.Open(compiled[path])
	})}
}

func (l loader) check(t *testing.T, p goPackage) *types.Info {
	t.Helper()
	_, info := l.load(t, p)
	return info
}

func (l loader) load(t *testing.T, p goPackage) (*types.Package, *types.Info) {
	t.Helper()
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	pkg, _ := l.loadInto(t, p, info)
	return pkg, info
}

// loadInto type-checks the package and fills info. It also returns the package's files.
func (l loader) loadInto(t *testing.T, p goPackage, info *types.Info) (*types.Package, []*ast.File) {
	t.Helper()
	var files []*ast.File
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(l.set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	pkg, err := (&types.Config{Importer: l.imp}).Check(p.ImportPath, l.set, files, info)
	if err != nil {
		t.Fatalf("type check of %s: %v", p.name(), err)
	}
	return pkg, files
}
