package app_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// The page says what each role may do, as the routes decide it. -update writes the table. (K09)
func TestThePageSaysWhatEachRoleMayDo(t *testing.T) {
	const page, begin, end = "../../docs/managing.md", "<!-- roles: written by go test ./internal/app -run Role -update -->\n", "<!-- end of roles -->\n"
	var b strings.Builder
	b.WriteString("| method | path | owner | admin | member | approver | reader | tools | operator |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, rt := range app.Routes() {
		if rt.Serve == nil || !strings.Contains(rt.Pattern, " ") {
			continue
		}
		method, path, _ := strings.Cut(strings.ReplaceAll(rt.Pattern, "...", ""), " ")
		fmt.Fprintf(&b, "| `%s` | `%s` |", method, path)
		for _, r := range []org.Role{org.Owner, org.Admin, org.Member, org.Approver, org.Reader, org.Tools} {
			word := ""
			if rt.Roles.Allow(r) {
				word = "yes"
			}
			fmt.Fprintf(&b, " %s |", word)
		}
		word := ""
		if rt.Roles == surface.Operator {
			word = "yes"
		}
		fmt.Fprintf(&b, " %s |\n", word)
	}
	data, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(data), begin)
	was, after, ok2 := strings.Cut(rest, end)
	switch {
	case !ok1 || !ok2:
		t.Fatal("the page does not have the marks of the table")
	case was == b.String():
	case *Update:
		if err := os.WriteFile(page, []byte(before+begin+b.String()+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table is out of date; run go test ./internal/app -run Role -update\n%s", b.String())
	}
}
