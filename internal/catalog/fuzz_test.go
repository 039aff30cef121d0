package catalog

import (
	"encoding/json"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/tool"
)

// FuzzAssemble: whatever servers call their tools, every name that the model
// sees is one that providers take and belongs to one tool, of the first server
// that has it; what is not offered is not found; the set does not depend on the
// order in which a server lists, and is the same after it was stored.
// C06 C24 D03 P07
func FuzzAssemble(f *testing.F) {
	f.Add("search\nread\nsearch", "search\nsеarch\n__proto__", "bare", "bare", "read")
	f.Add("a.b\na/b\na_b\n"+strings.Repeat("x", 70), "a_b\n\u200ba\nmcp__one__a_b", "namespaced", "bare", "")
	f.Add("two_x\nx", "x\n\ny", "bare", "prefixed", "x")
	f.Add(strings.Repeat("\x80", 200), "a", "bare", "bare", "") // no characters to cut between
	good := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	f.Fuzz(func(t *testing.T, first, second, naming, naming2, only string) {
		servers := []Server{{Name: "one", Naming: Naming(naming)}, {Name: "two", Naming: Naming(naming2)}}
		if only != "" {
			servers[1].Tools = strings.Split(only, ",")
		}
		none := slog.New(slog.DiscardHandler)
		tools := [][]tool.Tool{toolsOf(first), toolsOf(second)}
		listed := func() []*listing {
			return []*listing{examineAll(servers[0], tools[0], none), examineAll(servers[1], tools[1], none)}
		}
		set := assemble(servers, listed(), none)
		names := set.Names()
		if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) || len(set.Offered()) != len(names) {
			t.Fatalf("names %q", names)
		}
		for _, name := range names {
			e := set.Lookup(name)
			if !good.MatchString(name) || e == nil || e.Definition.Name != name || set.Withheld(name) != "" {
				t.Fatalf("%q is %+v", name, e)
			}
			if e.Server == "two" && (!servers[1].offers(e.Tool.Definition()) || slices.ContainsFunc(tools[0], func(a tool.Tool) bool { return servers[0].name(a.Definition().Name) == name })) {
				t.Fatalf("%q is a tool of the second server", name)
			}
		}
		slices.Reverse(tools[0])
		slices.Reverse(tools[1])
		if again := assemble(servers, listed(), none); !sameText(t, set.Offered(), again.Offered()) {
			t.Fatalf("offered %v, in another order %v", set.Offered(), again.Offered())
		}
		stored, err := set.Recall(set.Seal(), nil)
		if err != nil || !sameText(t, set.Offered(), stored.Offered()) {
			t.Fatalf("offered %v, once stored %v, %v", set.Offered(), stored, err)
		}
	})
}

// toolsOf returns a tool for each line. Tools of one name are the same.
func toolsOf(lines string) []tool.Tool {
	var tools []tool.Tool
	for name := range strings.SplitSeq(lines, "\n") {
		tools = append(tools, named(name))
	}
	return tools
}

func sameText(t *testing.T, a, b any) bool {
	t.Helper()
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	if errX != nil || errY != nil {
		t.Fatal(errX, errY)
	}
	return string(x) == string(y)
}
