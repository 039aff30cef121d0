package archtest

import (
	"go/ast"
	"go/token"
	"testing"
)

// constants are package variables that Go cannot declare as constants. Nobody
// writes to them after their declaration; each has its reason.
func constants() map[string]string {
	return map[string]string{
		"internal/surface/chat.wires": "the table from error codes to statuses: data, only read",
		"internal/id.encoding":        "an encoding without state",
		"internal/run.relayBuffers":   "a pool lends memory and remembers nothing",
		"internal/schema.hugeNumber":  "a compiled pattern",
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
		d, ok := decl.(*ast.GenDecl)
		if !ok || d.Tok != token.VAR {
			return
		}
		for _, spec := range d.Specs {
			v := spec.(*ast.ValueSpec)
			for i, id := range v.Names {
				full := p.name() + "." + id.Name
				found[full] = true
				if id.Name == "_" || isSentinel(v, i) || constants()[full] != "" {
					continue
				}
				t.Errorf("%s: %s is a variable that a whole package shares: make it a function, a constant or an argument", file.at(id), full)
			}
		}
	})
	for name := range constants() {
		if !found[name] {
			t.Errorf("%s is listed in globals_test.go and is not there any more: strike it", name)
		}
	}
}

// A sentinel error is compared, never changed.
func isSentinel(v *ast.ValueSpec, i int) bool {
	if i >= len(v.Values) {
		return false
	}
	call, ok := v.Values[i].(*ast.CallExpr)
	if !ok {
		return false
	}
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := selector.X.(*ast.Ident)
	return ok && (x.Name == "errors" && selector.Sel.Name == "New" || x.Name == "fmt" && selector.Sel.Name == "Errorf")
}

func TestNobodyWritesToThePackageVariablesThatThereAre(t *testing.T) {
	for _, p := range listPackages(t) {
		names := map[string]bool{}
		for full := range constants() {
			if own := p.name() + "."; len(full) > len(own) && full[:len(own)] == own {
				names[full[len(own):]] = true
			}
		}
		for _, file := range parse(t, p) {
			ast.Inspect(file.ast, func(n ast.Node) bool {
				if target := written(n); names[target] {
					t.Errorf("%s: writes to %s.%s, which everybody relies on not to change", file.at(n), p.name(), target)
				}
				return true
			})
		}
	}
}

// written returns the name of the variable that a statement assigns to, or
// whose element it assigns to; empty for none.
func written(n ast.Node) string {
	assign, ok := n.(*ast.AssignStmt)
	if !ok || assign.Tok == token.DEFINE {
		return ""
	}
	for _, left := range assign.Lhs {
		if index, ok := left.(*ast.IndexExpr); ok {
			left = index.X
		}
		if id, ok := left.(*ast.Ident); ok {
			return id.Name
		}
	}
	return ""
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
