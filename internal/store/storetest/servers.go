package storetest

import (
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

func serverCases() []rule {
	return []rule{
		{"a server is stored as it was created", "with every field except Position, which the store assigns", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			full := org.MCPServer{}
			fill(&full, "Command", "Env", "RequireApproval", "FromFile", "Shared", "UnknownSettings")
			full.Org = "a"
			b.ok(b.Orgs.CreateMCPServer(b.Context(), full, org.Author{}))
			full.Position = 0
			b.servers("a", full)
		}},
		{"nil tools and empty tools differ", "nil offers all tools, an empty list none", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			all := org.MCPServer{Org: "a", Name: "all"}
			nothing := org.MCPServer{Org: "a", Name: "none", Tools: []string{}, Position: 1}
			b.ok(b.Orgs.CreateMCPServer(b.Context(), all, org.Author{}))
			b.ok(b.Orgs.CreateMCPServer(b.Context(), nothing, org.Author{}))
			b.servers("a", all, nothing)
		}},
		{"servers keep the order of their creation", "of two tools with one name the first server's is offered, so the order must be stable", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			for _, name := range []string{"z", "a", "m"} {
				b.ok(b.Orgs.CreateMCPServer(b.Context(), org.MCPServer{Org: "a", Name: name, Position: 99}, org.Author{}))
			}
			b.ok(b.Orgs.DeleteMCPServer(b.Context(), "a", "a", org.Author{}))
			b.ok(b.Orgs.CreateMCPServer(b.Context(), org.MCPServer{Org: "a", Name: "a"}, org.Author{}))
			b.servers("a", org.MCPServer{Org: "a", Name: "z"}, org.MCPServer{Org: "a", Name: "m", Position: 2}, org.MCPServer{Org: "a", Name: "a", Position: 3})
		}},
		{"a server needs its org and a unique name", "ErrNotFound, ErrExists", func(b *testBench) {
			b.checkError(b.Orgs.CreateMCPServer(b.Context(), org.MCPServer{Org: "a", Name: "s"}, org.Author{}), org.ErrNotFound)
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			s := org.MCPServer{Org: "a", Name: "s", URL: "http://one"}
			b.ok(b.Orgs.CreateMCPServer(b.Context(), s, org.Author{}))
			b.checkError(b.Orgs.CreateMCPServer(b.Context(), org.MCPServer{Org: "a", Name: "s", URL: "http://two"}, org.Author{}), org.ErrExists)
			b.servers("a", s)
		}},
		{"an update keeps a server's position and creation time", "UpdateMCPServer leaves Position and CreatedAt", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.ok(b.Orgs.CreateMCPServer(b.Context(), org.MCPServer{Org: "a", Name: "first"}, org.Author{}))
			b.ok(b.Orgs.CreateMCPServer(b.Context(), org.MCPServer{Org: "a", Name: "s", CreatedAt: b.now()}, org.Author{}))
			changed := org.MCPServer{}
			fill(&changed, "Command", "Env", "RequireApproval", "FromFile", "Shared", "UnknownSettings")
			changed.Org, changed.Name, changed.CreatedAt = "a", "s", b.now().Add(time.Hour)
			b.ok(b.updateServer(changed, org.Author{}))
			changed.Position, changed.CreatedAt = 1, b.now()
			b.servers("a", org.MCPServer{Org: "a", Name: "first"}, changed)
		}},
		{"a server that another request has changed is not replaced", "ErrChanged: two changes of different members both count", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			first := org.MCPServer{Org: "a", Name: "s", URL: "http://one", Headers: map[string]string{"A": "b"}}
			b.ok(b.Orgs.CreateMCPServer(b.Context(), first, org.Author{}))
			second := first
			second.Enabled = true
			b.ok(b.Orgs.UpdateMCPServer(b.Context(), first, second, b.by("k")))
			third := first
			third.Headers = nil
			b.checkError(b.Orgs.UpdateMCPServer(b.Context(), first, third, b.by("k")), org.ErrChanged)
			b.servers("a", second)
			b.equal(b.managed("a"), []string{"k update mcp_server a/s"})
		}},
		{"a missing server is not found", "update and delete: ErrNotFound", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			b.checkError(b.updateServer(org.MCPServer{Org: "a", Name: "s"}, org.Author{}), org.ErrNotFound)
			b.checkError(b.Orgs.DeleteMCPServer(b.Context(), "a", "s", org.Author{}), org.ErrNotFound)
			b.checkError(b.updateServer(org.MCPServer{Org: "b", Name: "s"}, org.Author{}), org.ErrNotFound)
			b.checkError(b.Orgs.DeleteMCPServer(b.Context(), "b", "s", org.Author{}), org.ErrNotFound)
			b.servers("a")
		}},
	}
}

func serverContentCases() []rule {
	return []rule{
		{"a command is never stored", "otherwise an org's admin could start a process on the gateway's machine", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			s := org.MCPServer{Org: "a", Name: "s"}
			b.ok(b.Orgs.CreateMCPServer(b.Context(), s, org.Author{}))
			for _, bad := range []org.MCPServer{{Org: "a", Name: "s", Command: []string{"sh"}}, {Org: "a", Name: "s", Env: map[string]string{"A": "b"}}, {Org: "a", Name: "s", FromFile: true}} {
				if b.updateServer(bad, org.Author{}) == nil {
					b.Errorf("the server was changed to %+v", bad)
				}
				bad.Name = "t"
				if b.Orgs.CreateMCPServer(b.Context(), bad, org.Author{}) == nil {
					b.Errorf("the server was created: %+v", bad)
				}
			}
			b.servers("a", s)
		}},
		{"a caller may modify a server", "the store copies servers", func(b *testBench) {
			b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
			s := org.MCPServer{Org: "a", Name: "s", Tools: []string{"one"}, Polling: []string{"one"}, Reads: []string{"one"}, Keyed: []string{"one"}, Hosted: []string{"one"}, Cache: org.Cache{Names: []string{"one"}}, Headers: map[string]string{"one": "1"}}
			b.ok(b.Orgs.CreateMCPServer(b.Context(), s, org.Author{}))
			s.Tools[0], s.Polling[0], s.Reads[0], s.Keyed[0], s.Hosted[0], s.Cache.Names[0], s.Headers["one"] = "changed", "changed", "changed", "changed", "changed", "changed", "changed"
			list, err := b.Orgs.MCPServers(b.Context(), "a")
			b.ok(err)
			list[0].Tools[0], list[0].Polling[0], list[0].Reads[0], list[0].Keyed[0], list[0].Hosted[0], list[0].Cache.Names[0], list[0].Headers["one"] = "changed", "changed", "changed", "changed", "changed", "changed", "changed"
			b.servers("a", org.MCPServer{Org: "a", Name: "s", Tools: []string{"one"}, Polling: []string{"one"}, Reads: []string{"one"}, Keyed: []string{"one"}, Hosted: []string{"one"}, Cache: org.Cache{Names: []string{"one"}}, Headers: map[string]string{"one": "1"}})
		}},
	}
}

// servers fails the case unless the org has exactly these servers.
func (b *testBench) servers(orgID string, want ...org.MCPServer) {
	b.Helper()
	got, err := b.Orgs.MCPServers(b.Context(), orgID)
	if len(want) == 0 {
		checkEmpty(b, got, err)
		return
	}
	b.ok(err)
	b.equal(got, want)
}

// updateServer replaces a server, whatever is stored.
func (b *testBench) updateServer(s org.MCPServer, by org.Author) error {
	was := s
	stored, err := b.Orgs.MCPServers(b.Context(), s.Org)
	if i := slices.IndexFunc(stored, func(m org.MCPServer) bool { return m.Name == s.Name }); err == nil && i >= 0 {
		was = stored[i]
	}
	return b.Orgs.UpdateMCPServer(b.Context(), was, s, by)
}
