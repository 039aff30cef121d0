package docs_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The page about sessions says that none is found by the content of a request, and why. // J06
func TestThePageSaysThatSessionsAreExplicit(t *testing.T) {
	page, err := os.ReadFile("chat-sessions.md")
	if err != nil || !bytes.Contains(page, []byte("matching by content could give one of them the conversation of the other")) {
		t.Error("chat-sessions.md does not say it", err)
	}
}

// Every limit of the page is the constant that its row names. // P06
func TestTheLimitsPageSaysWhatTheCodeSays(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| ([^|]+) \\| ([^|]+) \\|[^|]*\\| ([^|]+) \\| `([^`]+)` `([^`]+)` \\|$").FindAllStringSubmatch(read(t, "docs/limits.md"), -1)
	if len(rows) < 30 {
		t.Fatalf("%d limits found: has the form of the page changed?", len(rows))
	}
	for _, row := range rows {
		what, says, dir, name := row[1], row[2], row[4], row[5]
		got, ok := constantOf(t, dir, name, 0)
		if !ok {
			t.Errorf("%s: %s has no constant %s", what, dir, name)
			continue
		}
		if want := amount(t, says); got != want {
			t.Errorf("%s: the page says %s, which is %d, and %s.%s is %d", what, says, want, dir, name, got)
		}
	}
}

// amount is the number of a cell such as "64 KiB" or "128 characters": bytes,
// milliseconds for a time, and otherwise as many as it says.
func amount(t *testing.T, cell string) int64 {
	t.Helper()
	var n int64
	var unit string
	if _, err := fmt.Sscan(cell, &n); err != nil {
		t.Fatalf("%q is no amount", cell)
	}
	_, unit, _ = strings.Cut(cell, " ")
	switch unit {
	case "KiB":
		return n << 10
	case "MiB":
		return n << 20
	case "s":
		return n * 1000
	}
	return n
}

// constantOf returns the value of a package's constant: a number, a time in
// milliseconds, or another constant of the package.
func constantOf(t *testing.T, dir, name string, depth int) (int64, bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(dir), "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no files: %v", dir, err)
	}
	set := token.NewFileSet()
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if e := findConstant(parsed, name); e != nil {
			return evaluate(t, set, dir, e, depth)
		}
	}
	return 0, false
}

// findConstant returns what a file's constant is set to; nil where it has none
// of the name.
func findConstant(file *ast.File, name string) ast.Expr {
	for _, d := range file.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, s := range group.Specs {
			spec := s.(*ast.ValueSpec)
			for i, id := range spec.Names {
				if id.Name == name && i < len(spec.Values) {
					return spec.Values[i]
				}
			}
		}
	}
	return nil
}

func evaluate(t *testing.T, set *token.FileSet, dir string, e ast.Expr, depth int) (int64, bool) {
	t.Helper()
	if other, ok := e.(*ast.Ident); ok && depth < 3 {
		return constantOf(t, dir, other.Name, depth+1)
	}
	text := strings.NewReplacer("time.Second", "1000", "time.Millisecond", "1", "time.Minute", "60000").Replace(types.ExprString(e))
	v, err := types.Eval(set, nil, token.NoPos, text)
	if err != nil || v.Value == nil {
		t.Fatalf("%s: %q: %v", dir, text, err)
	}
	return constant.Int64Val(constant.ToInt(v.Value))
}
