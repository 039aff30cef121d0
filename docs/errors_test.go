package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// anyStatus stands for the status of a code that depends on how a run ended, or on
// the caller of a function.
const anyStatus = 0

// sent is the codes that the program can answer with, each with its statuses.
type sent map[string]map[int]bool

func (s sent) add(code string, status int) {
	if s[code] == nil {
		s[code] = map[int]bool{}
	}
	s[code][status] = true
}

// The codes of errors in the code and on the page are the same, with the same
// status, and the page gives a cause and a remedy for each.
func TestTheErrorsPageListsEveryCode(t *testing.T) {
	codes := codesOfTheTree(t)
	onPage := sent{}
	rows := regexp.MustCompile("(?m)^\\| ([^|]+) \\| `([a-z_]+)` \\|([^|]*)\\|([^|]*)\\|$").FindAllStringSubmatch(read(t, "docs/errors.md"), -1)
	for _, row := range rows {
		status, code, cause, remedy := row[1], row[2], row[3], row[4]
		if status == "status" { // the head of a table
			continue
		}
		n, err := strconv.Atoi(status)
		if err != nil {
			t.Errorf("%s has the status %q, and a row has one", code, status)
			continue
		}
		onPage.add(code, n)
		if len(strings.Fields(cause)) < 3 || strings.TrimSpace(remedy) == "" {
			t.Errorf("docs/errors.md does not give a cause and a remedy for %d %s", n, code)
		}
		if of := codes[code]; !of[n] && !of[anyStatus] {
			t.Errorf("docs/errors.md has %d %s, which the program does not send: it sends it with %v", n, code, slices.Sorted(maps.Keys(of)))
		}
	}
	for code, statuses := range codes {
		for n := range statuses {
			if on := onPage[code]; !on[n] && (n != anyStatus || len(on) == 0) {
				t.Errorf("docs/errors.md does not list %s with the status %d", code, n)
			}
		}
	}
}

// statusesOf reads the table that maps codes of package fault to statuses.
func statusesOf(t *testing.T, file string) map[string]int {
	t.Helper()
	numbers := map[string]int{}
	for n := 400; n < 600; n++ {
		numbers[strings.ReplaceAll(http.StatusText(n), " ", "")] = n
	}
	statuses := map[string]int{}
	for _, m := range regexp.MustCompile(`\bfault\.(\w+):\s+\{?http\.Status(\w+)`).FindAllStringSubmatch(read(t, file), -1) {
		statuses[m[1]] = numbers[m[2]]
	}
	return statuses
}

// passedOn are the expressions that pass on a code that is found elsewhere.
// cause.Code returns a code of package loop, where its return statements are read.
var passedOn = []string{"f.Code", "f.Reason", "end.Code", "cause.Code(end.Reason)", "c.MemoryLimit"}

// computed are the codes of other expressions. A run that ends as caller_gone has
// no client that could be told.
var computed = map[string][]string{"string(reason)": {"cancelled"}, "string(end.Reason)": {"cancelled"}, "loop.CodeToolChoice": {loop.CodeToolChoice},
	"loop.CodeJournalRefused": {loop.CodeJournalRefused},
	"req.Continues.Code":      {"previous_response_not_found"},
	"r.Code":                  {"previous_response_not_found"},
	"ofConversation":          {"conversation_not_found"},
	"loop.Deleted":            {loop.Deleted}, "loop.KeyRevoked": {loop.KeyRevoked}, "loop.KeyExpired": {loop.KeyExpired},
	"c.Gone": {loop.ClientGone, loop.KeyRevoked, loop.KeyExpired, loop.ModelNotAllowed, loop.Deleted},
}

// internalOnly are codes that no client gets: a restore answers no requests.
var internalOnly = []string{"restoring"}

// codesOfTheTree finds the codes in calls of fault.New, in fault.Error and
// event.Failure, and in text that is JSON.
func codesOfTheTree(t *testing.T) sent {
	t.Helper()
	codes := sent{}
	statuses := statusesOf(t, "internal/surface/errors.go")
	if len(statuses) < 10 {
		t.Fatalf("the table of statuses is not read: %v", statuses)
	}
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || d.Name() == "testdata" {
			return err
		}
		codesOfPackage(t, path, statuses, codes)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range internalOnly {
		delete(codes, code)
	}
	if len(codes) < 50 {
		t.Fatalf("%d codes found: has the way in which errors are made changed?", len(codes))
	}
	return codes
}

func codesOfPackage(t *testing.T, dir string, statuses map[string]int, codes sent) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	fset := token.NewFileSet()
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	f := codeFinder{t, fset, statuses, constantTexts(files), codes}
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			f.visit(file.Name.Name, n)
			return true
		})
	}
}

// constantTexts returns the constants of a package that are texts.
func constantTexts(files []*ast.File) map[string]string {
	texts := map[string]string{}
	for _, file := range files {
		for _, d := range file.Decls {
			decl, ok := d.(*ast.GenDecl)
			if !ok || decl.Tok != token.CONST {
				continue
			}
			for _, s := range decl.Specs {
				spec := s.(*ast.ValueSpec)
				for i, v := range spec.Values {
					if text, ok := literal(v); ok {
						texts[spec.Names[i].Name] = text
					}
				}
			}
		}
	}
	return texts
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

type codeFinder struct {
	t        *testing.T
	fset     *token.FileSet
	statuses map[string]int // by the name of the code of package fault
	consts   map[string]string
	codes    sent
}

var (
	codeInJSON   = regexp.MustCompile(`"code":"([a-z_]+)"`)
	statusInJSON = regexp.MustCompile(`^HTTP/1\.1 (\d+) `)
)

func (f codeFinder) visit(pkg string, n ast.Node) {
	switch n := n.(type) {
	case *ast.FuncDecl:
		if pkg == "loop" && n.Name.Name == "Code" { // of Cause
			ast.Inspect(n, func(n ast.Node) bool {
				if r, ok := n.(*ast.ReturnStmt); ok {
					f.code(nil, r.Results[0])
				}
				return true
			})
		}
	case *ast.CallExpr:
		if name := written(n.Fun); (name == "fault.New" || pkg == "fault" && name == "New") && len(n.Args) >= 2 {
			f.code(n.Args[0], n.Args[1])
		}
	case *ast.CompositeLit:
		switch written(n.Type) {
		case "fault.Error":
			f.code(member(n, "Code"), member(n, "Reason"))
		case "event.Failure":
			f.code(nil, member(n, "Code"))
		case "Error":
			if pkg == "fault" && member(n, "Reason") != nil {
				f.code(member(n, "Code"), member(n, "Reason"))
			}
		}
	case *ast.BinaryExpr, *ast.BasicLit:
		text := allText(n.(ast.Expr))
		for _, m := range codeInJSON.FindAllStringSubmatch(text, -1) {
			status := anyStatus
			if s := statusInJSON.FindStringSubmatch(text); s != nil {
				status, _ = strconv.Atoi(s[1])
			}
			f.codes.add(m[1], status)
		}
	}
}

// code adds the code of an error, which is text, a constant or known.
func (f codeFinder) code(kind, code ast.Expr) {
	status := anyStatus
	if s, ok := kind.(*ast.SelectorExpr); ok {
		status = f.statuses[s.Sel.Name]
	} else if i, ok := kind.(*ast.Ident); ok {
		status = f.statuses[i.Name]
	}
	name := written(code)
	known, isComputed := computed[name]
	text, isText := literal(code)
	if constant, ok := f.consts[name]; ok {
		text, isText = constant, true
	}
	switch {
	case isText && text == "": // passed on without one
	case isText:
		f.codes.add(text, status)
	case isComputed:
		for _, c := range known {
			f.codes.add(c, status)
		}
	case slices.Contains(passedOn, name), name == "reason" && strings.HasSuffix(f.fset.Position(code.Pos()).Filename, "fault.go"):
	default:
		f.t.Errorf("%s: which codes can %s be? Say so in errors_test.go", f.fset.Position(code.Pos()), name)
	}
}

// member returns the value of a composite literal's field.
func member(lit *ast.CompositeLit, name string) ast.Expr {
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok && written(kv.Key) == name {
			return kv.Value
		}
	}
	return nil
}

// written returns a name, a selection or a call of one argument as it is written.
func written(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return written(e.X) + "." + e.Sel.Name
	case *ast.CallExpr:
		if len(e.Args) == 1 {
			return written(e.Fun) + "(" + written(e.Args[0]) + ")"
		}
	}
	return ""
}

// allText returns the texts of a sum.
func allText(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, _ := literal(e)
		return text
	case *ast.BinaryExpr:
		return allText(e.X) + allText(e.Y)
	}
	return ""
}
