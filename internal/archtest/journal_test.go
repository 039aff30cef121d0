package archtest

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"
	"testing"
)

const journalPackage = modulePath + "/internal/journal"

// appenders are the functions that may append to a journal, each with the reason.
func appenders() map[string]string {
	return map[string]string{
		"internal/run.runState.write":          "the owner's batches: commit has numbered the facts, and the rules allow them",
		"internal/run.deltaGroups.store":       "groups of deltas: rows without facts, under the owner's lease",
		"internal/run.Runner.appendForeign":    "the facts of everybody else",
		"internal/cli.narrator.Append":         "prints the batches that it passes on unchanged",
		"..recordedRuns.Append":                "records the audit entries of the batches that it passes on unchanged; . is the root",
		"turnpiketest/crashtest.ledger.Append": "passes batches on unchanged until the process is killed",
	}
}

// factWriters are the functions that may put facts into a batch, each with what it must
// call: so that no fact is appended which the rules have not allowed.
func factWriters() map[string][]string {
	return map[string][]string{
		"internal/run.runState.number":      {"internal/loop.Allowed"},
		"internal/run.Runner.appendForeign": {"internal/loop.Allowed", "internal/journal.Head.Allow"},
		"internal/run.withoutBodies":        {"internal/loop.WithoutTexts"}, // of facts that number has made

		"internal/store/database.headChange.after": {"internal/journal.Head.After"}, // of facts of a batch that was appended
	}
}

// Every fact of a run passes the same check, for every writer.
func TestNoFactIsAppendedWithoutTheRules(t *testing.T) {
	found := map[string]bool{}
	load := newLoader(t, "./...")
	for _, p := range writingPackages(t) {
		code := load.read(t, p)
		code.eachFunc(func(name string, f *ast.FuncDecl) {
			for _, at := range code.appends(f) {
				found[name] = true
				if appenders()[name] == "" {
					t.Errorf("%s: %s appends to a journal: facts of a run's owner go through runState.commit, those of others through Runner.appendForeign", at, name)
				}
			}
			for _, at := range code.factWrites(f) {
				found[name] = true
				must := factWriters()[name]
				if must == nil {
					t.Errorf("%s: %s puts facts into a batch: only functions that ask the rules do, see factWriters in journal_test.go", at, name)
				}
				for _, called := range must {
					if !code.calls(f)[called] {
						t.Errorf("%s: %s puts facts into a batch and does not call %s", at, name, called)
					}
				}
			}
		})
	}
	for name := range appenders() {
		if !found[name] {
			t.Errorf("%s is listed in journal_test.go and appends nothing: remove it", name)
		}
	}
	for name := range factWriters() {
		if !found[name] {
			t.Errorf("%s is listed in journal_test.go and writes no facts: remove it", name)
		}
	}
}

// writingPackages returns the packages that know internal/journal, without the test kit of the
// stores and the simulator, which make journals that no driver would write.
func writingPackages(t *testing.T) []goPackage {
	t.Helper()
	var list []goPackage
	for _, p := range listPackages(t) {
		knows := p.ImportPath == journalPackage
		for _, path := range p.Imports {
			knows = knows || path == journalPackage
		}
		if knows && p.name() != "internal/store/storetest" && p.name() != "internal/sim" {
			list = append(list, p)
		}
	}
	return list
}

// checkedPackage is a package with its types.
type checkedPackage struct {
	name  string
	set   *token.FileSet
	files []*ast.File
	info  *types.Info
}

// eachFunc calls do with every function of the package. Methods are named Type.Method.
func (c checkedPackage) eachFunc(do func(name string, f *ast.FuncDecl)) {
	for _, file := range c.files {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if object, ok := c.info.Defs[d.Name].(*types.Func); ok {
					do(funcName(object), d)
				}
			case *ast.GenDecl: // a function in a package variable
				do(c.name+".var", &ast.FuncDecl{Name: ast.NewIdent("var"), Type: &ast.FuncType{}, Body: &ast.BlockStmt{List: []ast.Stmt{&ast.DeclStmt{Decl: d}}}})
			}
		}
	}
}

// funcName returns the name of a function or method with its package's.
func funcName(f *types.Func) string {
	name := f.Name()
	if receiver := f.Signature().Recv(); receiver != nil {
		of := types.TypeString(receiver.Type(), func(*types.Package) string { return "" })
		name = strings.TrimPrefix(of, "*") + "." + name
	}
	if f.Pkg() == nil {
		return name
	}
	return inModule(f.Pkg().Path()) + "." + name
}

// appends returns where f uses a method Append that takes a journal.Lease: that of journal.Journal
// or of a store.
func (c checkedPackage) appends(f *ast.FuncDecl) (places []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		if !ok {
			return true
		}
		used, ok := c.info.Uses[id].(*types.Func)
		if !ok || used.Name() != "Append" || used.Signature().Recv() == nil || used.Signature().Params().Len() < 2 {
			return true
		}
		if types.TypeString(used.Signature().Params().At(1).Type(), nil) == journalPackage+".Lease" {
			places = append(places, c.set.Position(id.Pos()).String())
		}
		return true
	})
	return places
}

// factWrites returns where f sets the field Facts of a journal.Batch, or takes its address.
func (c checkedPackage) factWrites(f *ast.FuncDecl) (places []string) {
	report := func(n ast.Node) { places = append(places, c.set.Position(n.Pos()).String()) }
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if !isBatch(c.info.TypeOf(n)) {
				return true
			}
			for _, element := range n.Elts {
				pair, ok := element.(*ast.KeyValueExpr)
				if !ok {
					report(n) // a value for each field
					break
				} else if id, named := pair.Key.(*ast.Ident); named && id.Name == "Facts" {
					report(n)
				}
			}
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if c.isFacts(left) {
					report(left)
				}
			}
		case *ast.UnaryExpr:
			if n.Op == token.AND && c.isFacts(n.X) {
				report(n)
			}
		}
		return true
	})
	return places
}

// isFacts reports whether the expression is the field Facts of a journal.Batch or a part of it.
func (c checkedPackage) isFacts(e ast.Expr) bool {
	for {
		switch x := e.(type) {
		case *ast.ParenExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.SelectorExpr:
			if x.Sel.Name == "Facts" && isBatch(c.info.TypeOf(x.X)) {
				return true
			}
			e = x.X
		default:
			return false
		}
	}
}

func isBatch(t types.Type) bool {
	return t != nil && strings.TrimPrefix(types.TypeString(t, nil), "*") == journalPackage+".Batch"
}

// calls returns the names of the functions and methods that f calls.
func (c checkedPackage) calls(f *ast.FuncDecl) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		id, ok := call.Fun.(*ast.Ident)
		if selector, is := call.Fun.(*ast.SelectorExpr); is {
			id, ok = selector.Sel, true
		}
		if ok {
			if called, is := c.info.Uses[id].(*types.Func); is {
				names[funcName(called)] = true
			}
		}
		return true
	})
	return names
}

// read type-checks a package.
func (l loader) read(t *testing.T, p goPackage) checkedPackage {
	t.Helper()
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	_, files := l.loadInto(t, p, info)
	return checkedPackage{p.name(), l.set, files, info}
}
