package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func toolCases() []rule {
	return []rule{
		{"a custom tool is stored as it was created", "with every field; E19", toolStored},
		{"a custom tool is changed", "what it is, and when; not who it is", toolChanged},
		{"a custom tool that another request has changed is not replaced", "ErrChanged: two changes of different members both count", toolChangedMeanwhile},
		{"the name of a custom tool is unique in its org", "ErrExists", toolNames},
		{"a custom tool that an agent has is kept", "not deleted or renamed while the latest version of an agent has it, archived or not; N02", toolInUse},
		{"an agent has custom tools that exist", "of its own org; ErrToolMissing", toolMissing},
		{"custom tools are listed in pages", "by name, with how many there are", toolPages},
		{"a custom tool of another org does not exist", "every method with an id: ErrNotFound", toolForeign},
		{"an org takes its custom tools with it", "a new org with the id has none of them", toolsOfDeletedOrg},
		{"custom tools are capped", "deleting one makes room", toolsCapped},
		{"changes of custom tools are recorded", "with what differs, and without credentials", toolAudited},
	}
}

func toolPersistenceCases() []rule {
	return []rule{{"custom tools survive a restart", "as they were", toolsReopened}}
}

// newTool returns a custom tool that is not stored.
func newTool(orgID, name string) agent.Tool {
	return agent.Tool{Org: orgID, ID: "tool_" + name, ToolDefinition: agent.ToolDefinition{
		Name: name, Description: "d", InputSchema: json.RawMessage(`{"type":"object"}`), Endpoint: "https://example.com/" + name, Method: "POST",
	}}
}

// tool stores a custom tool, a second after what was before.
func (b *testBench) tool(orgID, name string) agent.Tool {
	b.Helper()
	b.step(time.Second)
	t := newTool(orgID, name)
	t.CreatedAt, t.UpdatedAt = b.now(), b.now()
	b.ok(b.Agents.CreateTool(b.Context(), t, org.Author{Principal: "p"}))
	return t
}

// tools fails the case unless the page has tools with these names.
func (b *testBench) tools(orgID string, limit, offset, wantTotal int, want ...string) {
	b.Helper()
	found, total, err := b.Agents.Tools(b.Context(), orgID, limit, offset)
	b.ok(err)
	got := []string{}
	for _, t := range found {
		got = append(got, t.Name)
	}
	b.equal(got, append([]string{}, want...))
	b.equal(total, wantTotal)
}

func toolStored(b *testBench) {
	b.withOrgs("a")
	var want agent.Tool
	fill(&want, "Unsupported")
	want.Org = "a"
	given := want
	given.ToolDefinition = want.Clone()
	b.ok(b.Agents.CreateTool(b.Context(), given, org.Author{}))
	given.InputSchema[0], given.Headers["<key> & more"] = 'x', "changed"
	for range 2 {
		got, err := b.Agents.Tool(b.Context(), "a", want.ID)
		b.ok(err)
		b.equal(got, want)
		got.InputSchema[0], got.Headers["<key> & more"] = 'x', "changed"
	}
	b.checkError(b.Agents.CreateTool(b.Context(), newTool("b", "x"), org.Author{}), org.ErrNotFound)
	b.checkError(b.Agents.CreateTool(b.Context(), want, org.Author{}), org.ErrExists)
}

func toolChanged(b *testBench) {
	b.withOrgs("a")
	want := b.tool("a", "x")
	b.step(time.Second)
	given := want
	given.Name, given.Endpoint, given.UpdatedAt, given.CreatedAt = "y", "https://example.com/other", b.now(), b.now()
	b.ok(b.updateTool(given, org.Author{}))
	want.ToolDefinition, want.UpdatedAt = given.ToolDefinition, given.UpdatedAt
	got, err := b.Agents.Tool(b.Context(), "a", want.ID)
	b.ok(err)
	b.equal(got, want)
	b.ok(b.Agents.RemoveTool(b.Context(), "a", want.ID, org.Author{}))
	b.tools("a", 10, 0, 0)
	b.checkError(b.updateTool(given, org.Author{}), org.ErrNotFound)
}

func toolChangedMeanwhile(b *testBench) {
	b.withOrgs("a")
	first := b.tool("a", "x")
	second, third := first, first
	second.Description, third.Method = "other", "DELETE"
	b.ok(b.Agents.UpdateTool(b.Context(), first, second, org.Author{}))
	b.checkError(b.Agents.UpdateTool(b.Context(), first, third, org.Author{}), org.ErrChanged)
	got, err := b.Agents.Tool(b.Context(), "a", first.ID)
	b.ok(err)
	b.equal(got, second)
}

// updateTool replaces the definition of a tool, whatever is stored.
func (b *testBench) updateTool(t agent.Tool, by org.Author) error {
	was, err := b.Agents.Tool(b.Context(), t.Org, t.ID)
	if err != nil {
		was = t
	}
	return b.Agents.UpdateTool(b.Context(), was, t, by)
}

func toolNames(b *testBench) {
	b.withOrgs("a", "b")
	b.tool("a", "x")
	y := b.tool("a", "y")
	b.tool("b", "x")
	other := newTool("a", "x")
	other.ID = "tool_other"
	b.checkError(b.Agents.CreateTool(b.Context(), other, org.Author{}), org.ErrExists)
	y.Name = "x"
	b.checkError(b.updateTool(y, org.Author{}), org.ErrExists)
	got, err := b.Agents.Tool(b.Context(), "a", y.ID)
	b.ok(err)
	b.equal(got.Name, "y")
}

// withTools returns an agent with the tools.
func withTools(a agent.Agent, tools ...agent.Tool) agent.Agent {
	a.Tools = nil
	for _, t := range tools {
		a.Tools = append(a.Tools, agent.Assignment{ID: "assigned_" + t.Name, Type: agent.CustomTool, Name: t.Name, ToolID: t.ID})
	}
	return a
}

func toolInUse(b *testBench) {
	b.withOrgs("a", "b")
	x, foreign := b.tool("a", "x"), b.tool("b", "x")
	first, second := b.agent("a", "one"), b.agent("a", "two")
	b.ok(b.Agents.UpdateAgent(b.Context(), 1, withTools(second, x), org.Author{}))
	b.ok(b.Agents.UpdateAgent(b.Context(), 1, withTools(first, x), org.Author{}))
	b.ok(b.Agents.ArchiveAgent(b.Context(), "a", first.ID, b.now(), b.now(), org.Author{}))
	inUse := func(err error, by string) {
		b.Helper()
		var e *agent.ToolInUseError
		if !errors.As(err, &e) || e.Agent != by || e.Tool != "x" {
			b.Errorf("got %v, want that %s has the tool", err, by)
		}
	}
	inUse(b.Agents.RemoveTool(b.Context(), "a", x.ID, org.Author{}), "one")
	renamed := x
	renamed.Name = "y"
	inUse(b.updateTool(renamed, org.Author{}), "one")
	x.Description = "other"
	b.ok(b.updateTool(x, org.Author{}))
	b.ok(b.Agents.RemoveTool(b.Context(), "b", foreign.ID, org.Author{}))
	b.ok(b.Agents.RemoveAgent(b.Context(), "a", first.ID, org.Author{}))
	inUse(b.Agents.RemoveTool(b.Context(), "a", x.ID, org.Author{}), "two")
	b.ok(b.Agents.UpdateAgent(b.Context(), 2, withTools(second), org.Author{})) // version 2 is kept, and has it
	b.ok(b.updateTool(renamed, org.Author{}))
	b.ok(b.Agents.RemoveTool(b.Context(), "a", x.ID, org.Author{}))
	_, err := b.Agents.ToolNamed(b.Context(), "a", "y")
	b.checkError(err, org.ErrNotFound)
}

func toolMissing(b *testBench) {
	b.withOrgs("a", "b")
	foreign, own := b.tool("b", "x"), b.tool("a", "y")
	b.checkError(b.Agents.CreateAgent(b.Context(), withTools(newAgent("a", "one"), own, foreign), org.Author{}), agent.ErrToolMissing)
	two := b.agent("a", "two")
	b.checkError(b.Agents.UpdateAgent(b.Context(), 1, withTools(two, foreign), org.Author{}), agent.ErrToolMissing)
	b.ok(b.Agents.UpdateAgent(b.Context(), 1, withTools(two, own), org.Author{}))
	b.agents("a", agent.Query{}, "two")
	got, err := b.Agents.ToolNamed(b.Context(), "a", "y")
	b.ok(err)
	b.equal(got, own)
	_, err = b.Agents.ToolNamed(b.Context(), "a", "x")
	b.checkError(err, org.ErrNotFound)
}

func toolPages(b *testBench) {
	b.withOrgs("a")
	for _, name := range []string{"c", "a", "d", "b"} {
		b.tool("a", name)
	}
	b.tools("a", 10, 0, 4, "a", "b", "c", "d")
	b.tools("a", 2, 1, 4, "b", "c")
	b.tools("a", 2, 9, 4)
	b.tools("nobody", 2, 0, 0)
}

func toolForeign(b *testBench) {
	b.withOrgs("a", "b")
	x := b.tool("a", "x")
	for _, orgID := range []string{"b", "nobody"} {
		_, err := b.Agents.Tool(b.Context(), orgID, x.ID)
		b.checkError(err, org.ErrNotFound)
		foreign := x
		foreign.Org = orgID
		b.checkError(b.updateTool(foreign, org.Author{}), org.ErrNotFound)
		b.checkError(b.Agents.RemoveTool(b.Context(), orgID, x.ID, org.Author{}), org.ErrNotFound)
	}
	b.tools("a", 10, 0, 1, "x")
}

func toolsOfDeletedOrg(b *testBench) {
	b.withOrgs("a")
	b.ok(b.Agents.CreateTool(b.Context(), newTool("a", "x"), org.Author{})) // audit rows would keep the id of the org from use
	b.ok(b.Orgs.DeleteOrg(b.Context(), "a", org.Author{}))
	b.withOrgs("a")
	b.tools("a", 10, 0, 0)
	b.tool("a", "x")
}

func toolsCapped(b *testBench) {
	b.capped(org.Caps{Tools: 1})
	x := b.tool("a", "x")
	b.checkCapError(b.Agents.CreateTool(b.Context(), newTool("a", "y"), org.Author{}), "org_caps.tools", 1)
	b.tool("b", "y")
	b.ok(b.updateTool(x, org.Author{}))
	b.ok(b.Agents.RemoveTool(b.Context(), "a", x.ID, org.Author{}))
	b.tool("a", "y")
}

func toolAudited(b *testBench) {
	b.withOrgs("a")
	by := org.Author{Principal: "p", RequestID: "req", At: 5}
	t := newTool("a", "x")
	t.Endpoint, t.Headers = "https://example.com/?key=canary", map[string]string{"X": "canary", "Y": "secret:name"}
	b.ok(b.Agents.CreateTool(b.Context(), t, by))
	t.Method = "PUT"
	b.ok(b.updateTool(t, by))
	b.ok(b.Agents.RemoveTool(b.Context(), "a", t.ID, by))
	got := []string{}
	for _, row := range b.rows("a", audit.Query{Limit: 10, Kind: audit.KindManagement}, 3) {
		text := string(row.Body)
		if strings.Contains(text, "canary") {
			b.Errorf("an audit row has what nobody may read: %s", text)
		}
		var m struct {
			Resource, ID, Action string
			Before, After        struct{ Method string }
		}
		b.ok(json.Unmarshal(row.Body, &m))
		got = append(got, fmt.Sprintf("%s %s %s %s %s", m.Resource, m.ID, m.Action, m.Before.Method, m.After.Method))
	}
	b.equal(got, []string{"tool tool_x create  POST", "tool tool_x update POST PUT", "tool tool_x delete PUT "})
}

func toolsReopened(b *testBench) {
	b.withOrgs("a")
	want := b.tool("a", "x")
	b.Store = b.maker.Reopen(b.T, b.Store)
	got, err := b.Agents.Tool(b.Context(), "a", want.ID)
	b.ok(err)
	b.equal(got, want)
}
