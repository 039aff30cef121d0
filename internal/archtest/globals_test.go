package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// exceptions are package variables that are neither of the harmless kinds (see
// isFixed) nor a danger, each with the reason.
func exceptions() map[string]string {
	return map[string]string{
		"internal/app.release":            "only the linker sets it, for release builds",
		"internal/app/apptest.document":   "read once for the tests of a package",
		"internal/app/apptest.schemas":    "compiled once for the tests of a package",
		"internal/app/apptest.emptyStore": "made once for the tests of a package",
		"internal/app/apptest.decided":    "parallel tests are known by their T",
		"internal/app/apptest.built":      "the program is built once for the tests of a package",
		"internal/app/apptest.pythonOnce": "Python is compiled once for the tests of a package",
		"internal/app/apptest.Update":     "a flag of tests",
		"internal/app/apptest.Kinds":      "a table of tests",
		"internal/id.random":              "an encoding has no state",
		"internal/id.ordered":             "an encoding has no state",
		"internal/egress.copies":          "a pool lends memory and remembers nothing",
		"internal/loop.decoders":          "a table that is read only",
		"internal/memlimit.lent":          "a pool lends memory and remembers nothing",
		"internal/rates.builtinRows":      "decoded once, and read only",
		"internal/run.smallBuffers":       "a pool lends memory and remembers nothing",
		"internal/run.largeBuffers":       "a pool lends memory and remembers nothing",
		"internal/sse.spareBuffers":       "a pool lends memory and remembers nothing",
		"internal/upstreamtest.compiled":  "compiled once, and read only",
		"..ErrBusy":                       "another name of an error, which has no state",
		"..ErrNoSession":                  "another name of an error, which has no state",
	}
}

func TestThereIsNoInit(t *testing.T) {
	eachDecl(t, func(p goPackage, file parsedFile, decl ast.Decl) {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			t.Errorf("%s: init: what happens because of an import cannot be found by reading; internal/app builds everything, in order", file.at(f))
		}
	})
}

func TestThereAreNoGlobals(t *testing.T) {
	found := map[string]bool{}
	eachDecl(t, func(p goPackage, file parsedFile, decl ast.Decl) {
		for _, v := range variables(decl) {
			full := p.name() + "." + v.id.Name
			found[full] = true
			if v.id.Name != "_" && !isFixed(v) && exceptions()[full] == "" {
				t.Errorf("%s: %s is a variable that a whole package shares: make it a function, a constant or an argument", file.at(v.id), full)
			}
		}
	})
	for name := range exceptions() {
		if !found[name] {
			t.Errorf("%s is listed in globals_test.go and is not there any more: strike it", name)
		}
	}
}

// variable is one package variable.
type variable struct {
	id       *ast.Ident
	value    ast.Expr // nil for none
	embedded bool     // filled by the compiler, from a file
}

func variables(decl ast.Decl) []variable {
	d, ok := decl.(*ast.GenDecl)
	if !ok || d.Tok != token.VAR {
		return nil
	}
	var list []variable
	for _, spec := range d.Specs {
		s := spec.(*ast.ValueSpec)
		for i, id := range s.Names {
			v := variable{id: id, embedded: isEmbedded(d.Doc) || isEmbedded(s.Doc)}
			if i < len(s.Values) {
				v.value = s.Values[i]
			}
			list = append(list, v)
		}
	}
	return list
}

func isEmbedded(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
}

// isFixed reports whether the variable is a constant in all but name: a
// sentinel error, a compiled pattern, an embedded file, or a table that no other
// package can reach. That nobody in its own package writes to it is a test of
// its own.
func isFixed(v variable) bool {
	if v.embedded {
		return !v.id.IsExported()
	}
	switch value := v.value.(type) {
	case *ast.CompositeLit:
		_, isMap := value.Type.(*ast.MapType)
		_, isList := value.Type.(*ast.ArrayType)
		return (isMap || isList) && !v.id.IsExported()
	case *ast.CallExpr:
		switch called(value) {
		case "errors.New", "fmt.Errorf", "regexp.MustCompile":
			return true
		case "json.RawMessage": // a schema, written as text
			return !v.id.IsExported()
		}
	}
	return false
}

// called returns what a call of another package's function names, such as
// errors.New; empty for other calls.
func called(call *ast.CallExpr) string {
	if f, ok := call.Fun.(*ast.SelectorExpr); ok {
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
	}
	return ""
}

func TestNobodyWritesToAPackageVariable(t *testing.T) {
	for _, p := range listPackages(t) {
		files := parse(t, p)
		shared := map[string]bool{}
		for _, file := range files {
			for _, decl := range file.ast.Decls {
				for _, v := range variables(decl) {
					shared[v.id.Name] = v.id.Name != "_"
				}
			}
		}
		for _, file := range files {
			for _, decl := range file.ast.Decls {
				if f, ok := decl.(*ast.FuncDecl); ok {
					checkWrites(t, file, f, shared)
				}
			}
		}
	}
}

func checkWrites(t *testing.T, file parsedFile, f *ast.FuncDecl, shared map[string]bool) {
	t.Helper()
	own := declared(f)
	ast.Inspect(f, func(n ast.Node) bool {
		for _, name := range written(n) {
			if shared[name] && !own[name] {
				t.Errorf("%s: writes to the package variable %s, which everybody relies on not to change", file.at(n), name)
			}
		}
		return true
	})
}

// declared returns the names that a function declares itself.
func declared(f *ast.FuncDecl) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Field:
			for _, id := range n.Names {
				names[id.Name] = true
			}
		case *ast.ValueSpec:
			for _, id := range n.Names {
				names[id.Name] = true
			}
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE {
					names[id.Name] = true
				}
			}
		}
		return true
	})
	return names
}

// written returns the names of the variables that a statement assigns to, or to
// a part of which it does.
func written(n ast.Node) []string {
	var targets []ast.Expr
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			targets = n.Lhs
		}
	case *ast.IncDecStmt:
		targets = []ast.Expr{n.X}
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear") {
			targets = n.Args[:1]
		}
	}
	var names []string
	for _, target := range targets {
		if id, ok := base(target).(*ast.Ident); ok {
			names = append(names, id.Name)
		}
	}
	return names
}

// base returns what an expression such as a.b[c].d begins with.
func base(e ast.Expr) ast.Expr {
	for {
		switch x := e.(type) {
		case *ast.IndexExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return e
		}
	}
}

// eachDecl calls f with every declaration of the module that is in no test.
func eachDecl(t *testing.T, f func(goPackage, parsedFile, ast.Decl)) {
	t.Helper()
	for _, p := range listPackages(t) {
		for _, file := range parse(t, p) {
			for _, decl := range file.ast.Decls {
				f(p, file, decl)
			}
		}
	}
}
