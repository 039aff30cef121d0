package catalog

import (
	"slices"
	"testing"

	"github.com/turnpike-gateway/turnpike/tool"
)

func names(defs []tool.Definition) []string {
	out := make([]string, len(defs))
	for i, d := range defs {
		out[i] = d.Name
	}
	return out
}

// Of a server's tools, those with the names and the annotation are offered, and the
// caller sees those, with the server's own names. // D23
func TestWhichToolsOfAShownServerAreOffered(t *testing.T) {
	hinted := func(name string, reads bool) tool.Tool {
		return fakeTool{def: tool.Definition{Name: name, InputSchema: []byte(`{"type":"object"}`), Annotations: tool.Annotations{ReadOnly: new(reads)}}}
	}
	s := Server{Name: "s", Shown: true, Naming: Namespaced, Source: has(named("silent"), hinted("reads", true), hinted("writes", false))}
	for name, tt := range map[string]struct {
		change func(*Server)
		want   []string
	}{
		"all":                  {func(*Server) {}, []string{"reads", "silent", "writes"}},
		"some":                 {func(s *Server) { s.Tools = []string{"writes", "another"} }, []string{"writes"}},
		"none":                 {func(s *Server) { s.Tools = []string{} }, []string{}},
		"those that read":      {func(s *Server) { s.ReadOnly = new(true) }, []string{"reads"}},
		"those that may write": {func(s *Server) { s.ReadOnly = new(false) }, []string{"silent", "writes"}},
		"named, and read":      {func(s *Server) { s.ReadOnly, s.Tools = new(true), []string{"reads", "writes"} }, []string{"reads"}},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := logged(t)
			mustFind(t, c, s) // whose set is cached
			server := s
			tt.change(&server)
			set := mustFind(t, c, server, Server{Name: "hidden", Source: has(named("x"))})
			if got := names(set.Of("s")); !slices.Equal(got, tt.want) {
				t.Errorf("offered %q, want %q", got, tt.want)
			}
			if len(set.Offered()) != len(tt.want)+1 || !set.Servers[0].Shown || set.Servers[1].Shown {
				t.Errorf("%d tools are offered, of %+v", len(set.Offered()), set.Servers)
			}
		})
	}
}

func TestTheNamesUnderWhichAServersToolsAreCalled(t *testing.T) {
	c, _ := logged(t)
	set := mustFind(t, c, Server{Name: "s", Naming: Namespaced, Source: has(named("a"), named("b"))}, Server{Name: "t", Source: has(named("a"))})
	for of, want := range map[[2]string][]string{
		{"s", ""}: {"mcp__s__a", "mcp__s__b"}, {"s", "b"}: {"mcp__s__b"}, {"t", "a"}: {"a"}, {"t", "b"}: nil, {"u", ""}: nil,
	} {
		if got := set.Called(of[0], of[1]); !slices.Equal(got, want) {
			t.Errorf("%v are called %q, want %q", of, got, want)
		}
	}
}

// Hidden servers take no tool away from a server that the caller sees. // D03 D19
func TestAShownToolIsOfferedWhateverHiddenServersHave(t *testing.T) {
	c, log := logged(t)
	shown := Server{Name: "request:docs", FromRequest: true, Shown: true, Source: has(named("search"))}
	set := mustFind(t, c, Server{Name: "a", Source: has(named("search"))}, Server{Name: "docs", Naming: Namespaced, Source: has(named("search"))}, shown)
	called := set.Called("request:docs", "search")
	if len(called) != 1 || called[0] != "mcp__docs__search_"+suffixOf("request:docs__search") || len(set.Offered()) != 3 || len(set.NewCollisions()) != 0 {
		t.Errorf("called %q, of %q\n%s", called, set.Names(), log())
	}
	if got := names(set.Of("request:docs")); !slices.Equal(got, []string{"search"}) {
		t.Errorf("listed %q", got)
	}
}
