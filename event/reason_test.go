package event_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
)

func TestReasonsAreAllTheConstants(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "reason.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var want []event.Reason
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, event.Reason(text))
		return true
	})
	if diff := cmp.Diff(want, event.Reasons()); diff != "" || len(want) == 0 {
		t.Errorf("the constants and the list differ (-constants +list):\n%s", diff)
	}
}
