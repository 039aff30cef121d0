package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func agentCases() []rule {
	return []rule{
		{"an agent is stored as it was created", "with every field; N01", agentStored},
		{"each change of an agent is a new version", "a run can say which one it used", agentVersions},
		{"the oldest versions are deleted", "an agent that is changed every minute does not fill the disk", agentOutdated},
		{"an agent is changed as it was read", "of two changes at the same time one is refused", agentChanged},
		{"the name of an agent is unique in its org", "also while the other one is archived; ErrExists", agentNames},
		{"agents are archived and restored", "which is no new version; archived ones are listed when they are asked for", agentArchived},
		{"agents are listed in pages", "the latest created first, with how many there are", agentPages},
		{"an agent of another org does not exist", "every method with an id: ErrNotFound", agentForeign},
		{"an org takes its agents with it", "a new org with the id has none of them", agentsOfDeletedOrg},
		{"agents are capped", "archived ones count, deleting one makes room", agentsCapped},
		{"a caller may modify an agent", "the store copies agents", agentCopied},
		{"agents of the configuration file have versions", "which stay over restarts and reloads, and when an agent leaves the file; N01", agentsDeclared},
		{"settings of agents are stored", "all of one request or none, and those without a value are deleted; N12", agentSettings},
		{"changes of settings of agents at the same time all count", "and no change of other settings replaces them: ErrChanged; N12", agentSettingsChanged},
		{"changes of agents are recorded", "with what differs, and without prompts and credentials", agentAudited},
	}
}

func agentPersistenceCases() []rule {
	return []rule{
		{"agents and settings survive a restart", "with their versions", agentsReopened},
	}
}

// newAgent returns an agent that is not stored.
func newAgent(orgID, name string) agent.Agent {
	return agent.Agent{Org: orgID, ID: "agent_" + name, Definition: agent.Definition{Name: name, Model: "m"}}
}

// agent stores an agent, a second after the one before.
func (b *testBench) agent(orgID, name string) agent.Agent {
	b.Helper()
	b.step(time.Second)
	a := newAgent(orgID, name)
	a.CreatedAt, a.UpdatedAt = b.now(), b.now()
	b.ok(b.Agents.CreateAgent(b.Context(), a, org.Author{Principal: "p"}))
	a.Version = 1
	return a
}

// fullAgent has every field.
func fullAgent(orgID string) agent.Agent {
	var a agent.Agent
	fill(&a, "Unsupported", "Declared")
	for i := range a.Servers {
		a.Servers[i].Settings = org.MCPServer{URL: "https://example.com", Headers: map[string]string{"A": "Bearer secret:x"}, Enabled: i == 0}
	}
	for i := range a.Tools {
		a.Tools[i].ToolID = "" // a tool that exists: see toolMissing
	}
	a.Org, a.ID, a.Version = orgID, agent.Prefix+"full", 1
	return a
}

func agentStored(b *testBench) {
	b.withOrgs("a")
	want := fullAgent("a")
	b.ok(b.Agents.CreateAgent(b.Context(), want, org.Author{Principal: "p"}))
	got, err := b.Agents.Agent(b.Context(), "a", want.ID)
	b.ok(err)
	b.equal(got, want)
	versions, total, err := b.Agents.AgentVersions(b.Context(), "a", want.ID, 10, 0)
	b.ok(err)
	b.equal(total, 1)
	b.equal(versions, []agent.Version{{Number: 1, Definition: want.Definition, Principal: "p", CreatedAt: want.UpdatedAt}})
	b.checkError(b.Agents.CreateAgent(b.Context(), newAgent("b", "x"), org.Author{}), org.ErrNotFound)
	b.checkError(b.Agents.CreateAgent(b.Context(), want, org.Author{}), org.ErrExists)
}

func agentVersions(b *testBench) {
	b.withOrgs("a")
	a := b.agent("a", "x")
	created := a.CreatedAt
	for n := 2; n <= 4; n++ {
		b.step(time.Second)
		a.Model, a.UpdatedAt, a.CreatedAt, a.Name = fmt.Sprint("m", n), b.now(), b.now(), fmt.Sprint("x", n)
		b.ok(b.Agents.UpdateAgent(b.Context(), n-1, a, org.Author{Principal: "q"}))
	}
	a.Version, a.CreatedAt = 4, created
	got, err := b.Agents.Agent(b.Context(), "a", a.ID)
	b.ok(err)
	b.equal(got, a)
	versions, total, err := b.Agents.AgentVersions(b.Context(), "a", a.ID, 2, 1)
	b.ok(err)
	b.equal(total, 4)
	if len(versions) != 2 || versions[0].Number != 3 || versions[0].Model != "m3" || versions[0].Principal != "q" || versions[1].Number != 2 {
		b.Errorf("versions: %+v", versions)
	}
	first, err := b.Agents.AgentVersion(b.Context(), "a", a.ID, 1)
	b.ok(err)
	if first.Name != "x" || first.Model != "m" || first.Principal != "p" {
		b.Errorf("version 1: %+v", first)
	}
	for _, n := range []int{0, 5} {
		_, err := b.Agents.AgentVersion(b.Context(), "a", a.ID, n)
		b.checkError(err, org.ErrNotFound)
	}
}

func agentOutdated(b *testBench) {
	b.withOrgs("a")
	a := b.agent("a", "x")
	change := func(from, to int, prompt string) {
		for n := from; n < to; n++ {
			a.SystemPrompt = fmt.Sprint(n, prompt)
			b.ok(b.Agents.UpdateAgent(b.Context(), n, a, org.Author{}))
		}
	}
	change(1, agent.MaxVersions+10, "")
	kept := func() (total, oldest int) {
		b.Helper()
		_, total, err := b.Agents.AgentVersions(b.Context(), "a", a.ID, 1, 0)
		b.ok(err)
		last, _, err := b.Agents.AgentVersions(b.Context(), "a", a.ID, 1, total-1)
		b.ok(err)
		return total, last[0].Number
	}
	if total, oldest := kept(); total != agent.MaxVersions+1 || oldest != 10 {
		b.Errorf("%d versions are kept from %d on", total, oldest)
	}
	change(agent.MaxVersions+10, agent.MaxVersions+40, strings.Repeat("x", agent.MaxSystemPrompt-10))
	if total, _ := kept(); total > 1+agent.MaxVersionBytes/(agent.MaxSystemPrompt-10) || total < 10 {
		b.Errorf("%d large versions are kept", total)
	}
}

func agentChanged(b *testBench) {
	b.withOrgs("a")
	a := b.agent("a", "x")
	a.Model = "one"
	b.ok(b.Agents.UpdateAgent(b.Context(), 1, a, org.Author{}))
	a.Model = "two"
	b.checkError(b.Agents.UpdateAgent(b.Context(), 1, a, org.Author{}), org.ErrChanged)
	got, err := b.Agents.Agent(b.Context(), "a", a.ID)
	b.ok(err)
	b.equal(got.Model, "one")
}

func agentNames(b *testBench) {
	b.withOrgs("a", "b")
	x, y := b.agent("a", "x"), b.agent("a", "y")
	b.agent("b", "x")
	b.ok(b.Agents.ArchiveAgent(b.Context(), "a", x.ID, b.now(), b.now(), org.Author{}))
	other := newAgent("a", "x")
	other.ID = "agent_other"
	b.checkError(b.Agents.CreateAgent(b.Context(), other, org.Author{}), org.ErrExists)
	y.Name = "x"
	b.checkError(b.Agents.UpdateAgent(b.Context(), 1, y, org.Author{}), org.ErrExists)
	got, err := b.Agents.Agent(b.Context(), "a", y.ID)
	b.ok(err)
	if got.Name != "y" || got.Version != 1 {
		b.Errorf("after a refused change: %+v", got)
	}
	b.ok(b.Agents.RemoveAgent(b.Context(), "a", x.ID, org.Author{}))
	b.ok(b.Agents.UpdateAgent(b.Context(), 1, y, org.Author{}))
}

func agentArchived(b *testBench) {
	b.withOrgs("a")
	x, y := b.agent("a", "x"), b.agent("a", "y")
	at := b.now().Add(time.Minute)
	b.ok(b.Agents.ArchiveAgent(b.Context(), "a", x.ID, at, at, org.Author{}))
	b.ok(b.Agents.ArchiveAgent(b.Context(), "a", x.ID, at.Add(time.Hour), at.Add(time.Hour), org.Author{}))
	b.agents("a", agent.Query{}, "y")
	b.agents("a", agent.Query{Archived: agent.OnlyArchived}, "x")
	b.agents("a", agent.Query{Archived: agent.AllAgents}, "y", "x")
	b.agents("a", agent.Query{Name: "x"})
	b.agents("a", agent.Query{Name: "x", Archived: agent.AllAgents}, "x")
	got, err := b.Agents.Agent(b.Context(), "a", x.ID)
	b.ok(err)
	x.ArchivedAt, x.UpdatedAt = at, at
	b.equal(got, x)
	b.ok(b.Agents.ArchiveAgent(b.Context(), "a", x.ID, time.Time{}, at, org.Author{}))
	b.ok(b.Agents.ArchiveAgent(b.Context(), "a", y.ID, time.Time{}, at, org.Author{}))
	b.agents("a", agent.Query{}, "y", "x")
}

// agents fails the case unless the query finds agents with these names.
func (b *testBench) agents(orgID string, q agent.Query, want ...string) {
	b.Helper()
	if q.Limit == 0 {
		q.Limit = 100
	}
	found, total, err := b.Agents.Agents(b.Context(), orgID, q)
	b.ok(err)
	got := []string{}
	for _, a := range found {
		got = append(got, a.Name)
	}
	b.equal(got, append([]string{}, want...))
	if q.Limit == 100 && total != len(want) {
		b.Errorf("%d in total, want %d", total, len(want))
	}
}

func agentPages(b *testBench) {
	b.withOrgs("a")
	for n := range 5 {
		b.agent("a", fmt.Sprint("x", n))
	}
	b.agents("a", agent.Query{Limit: 2}, "x4", "x3")
	b.agents("a", agent.Query{Limit: 2, Offset: 3}, "x1", "x0")
	b.agents("a", agent.Query{Limit: 2, Offset: 5})
	_, total, err := b.Agents.Agents(b.Context(), "a", agent.Query{Limit: 2, Offset: 9})
	b.ok(err)
	b.equal(total, 5)
	found, total, err := b.Agents.Agents(b.Context(), "nobody", agent.Query{Limit: 2})
	checkEmpty(b, found, err)
	b.equal(total, 0)
}

func agentForeign(b *testBench) {
	b.withOrgs("a", "b")
	x := b.agent("a", "x")
	for _, orgID := range []string{"b", "nobody"} {
		_, err := b.Agents.Agent(b.Context(), orgID, x.ID)
		b.checkError(err, org.ErrNotFound)
		_, _, err = b.Agents.AgentVersions(b.Context(), orgID, x.ID, 1, 0)
		b.checkError(err, org.ErrNotFound)
		_, err = b.Agents.AgentVersion(b.Context(), orgID, x.ID, 1)
		b.checkError(err, org.ErrNotFound)
		foreign := x
		foreign.Org = orgID
		b.checkError(b.Agents.UpdateAgent(b.Context(), 1, foreign, org.Author{}), org.ErrNotFound)
		b.checkError(b.Agents.ArchiveAgent(b.Context(), orgID, x.ID, b.now(), b.now(), org.Author{}), org.ErrNotFound)
		b.checkError(b.Agents.RemoveAgent(b.Context(), orgID, x.ID, org.Author{}), org.ErrNotFound)
	}
	b.agents("a", agent.Query{}, "x")
}

func agentsOfDeletedOrg(b *testBench) {
	b.withOrgs("a")
	x := newAgent("a", "x")
	b.ok(b.Agents.CreateAgent(b.Context(), x, org.Author{})) // audit rows would keep the id of the org from use
	b.ok(b.changeSettings("a", org.Author{}, func(a *org.Agents) { a.MaxSteps = 3 }))
	b.ok(b.Orgs.DeleteOrg(b.Context(), "a", org.Author{}))
	b.withOrgs("a")
	b.agents("a", agent.Query{Archived: agent.AllAgents})
	_, err := b.Agents.AgentVersion(b.Context(), "a", x.ID, 1)
	b.checkError(err, org.ErrNotFound)
	b.equal(b.settings("a"), org.Agents{})
	b.agent("a", "x")
}

func agentsCapped(b *testBench) {
	b.capped(org.Caps{Agents: 1})
	x := b.agent("a", "x")
	b.ok(b.Agents.ArchiveAgent(b.Context(), "a", x.ID, b.now(), b.now(), org.Author{}))
	b.checkCapError(b.Agents.CreateAgent(b.Context(), newAgent("a", "y"), org.Author{}), "org_caps.agents", 1)
	b.agent("b", "y")
	b.ok(b.Agents.UpdateAgent(b.Context(), 1, x, org.Author{}))
	b.ok(b.Agents.RemoveAgent(b.Context(), "a", x.ID, org.Author{}))
	b.agent("a", "y")
}

func agentCopied(b *testBench) {
	b.withOrgs("a")
	want := fullAgent("a")
	given := want
	given.Definition = want.Clone()
	b.ok(b.Agents.CreateAgent(b.Context(), given, org.Author{}))
	given.Servers[0].Name, given.Hooks[0].HTTP.Headers["<key> & more"], *given.Settings.MaxSteps = "changed", "changed", 1
	for range 2 {
		got, err := b.Agents.Agent(b.Context(), "a", want.ID)
		b.ok(err)
		b.equal(got, want)
		got.Servers[0].Name, *got.Settings.MaxSteps = "changed", 1
		v, err := b.Agents.AgentVersion(b.Context(), "a", want.ID, 1)
		b.ok(err)
		b.equal(v.Definition, want.Definition)
		v.Hooks[0].Rules[0].Condition = "changed"
	}
}

func agentSettings(b *testBench) {
	b.withOrgs("a", "b")
	at := b.now()
	put := func(orgID string, at time.Time, values map[string]string) error {
		return b.changeSettings(orgID, org.Author{}, func(a *org.Agents) {
			for _, k := range agent.SettingKeys() {
				if value, ok := values[k.Key]; ok {
					k.Set(a, value, at)
				}
			}
		})
	}
	full := org.Runtime{}
	fill(&full)
	ofOrg(&full)
	full.Agents = org.Agents{}
	b.ok(b.updateOrg(org.Record{ID: "a", Features: []string{"one"}, Runtime: full}, org.Author{}))
	b.ok(put("a", at, map[string]string{agent.TimeoutKey: "1", agent.DefaultModelKey: "2", agent.VisionModelKey: ""}))
	b.ok(put("b", at, map[string]string{agent.DefaultModelKey: "<other> & more"}))
	b.ok(put("a", at.Add(time.Hour), map[string]string{agent.TimeoutKey: "", agent.DefaultModelKey: "3"}))
	full.Agents = org.Agents{DefaultModel: "3", SetAt: map[string]int64{agent.DefaultModelKey: at.Add(time.Hour).UnixMilli()}}
	b.orgs(org.Record{ID: "a", Features: []string{"one"}, Runtime: full}, org.Record{ID: "b", Runtime: org.Runtime{
		Agents: org.Agents{DefaultModel: "<other> & more", SetAt: map[string]int64{agent.DefaultModelKey: at.UnixMilli()}},
	}})
	b.checkError(put("nobody", at, map[string]string{agent.DefaultModelKey: "1"}), org.ErrNotFound)
	b.ok(put("a", at, map[string]string{agent.DefaultModelKey: ""}))
	b.equal(b.settings("a"), org.Agents{})
}

// A change of other settings that began before counts as made meanwhile: the members of both stay.
func agentSettingsChanged(b *testBench) {
	b.withOrgs("a")
	was, err := b.Orgs.Org(b.Context(), "a")
	b.ok(err)
	var errs [10]error
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = b.changeSettings("a", org.Author{}, func(a *org.Agents) { a.MaxSteps++ }) })
	}
	all.Wait()
	b.ok(errors.Join(errs[:]...))
	b.equal(b.settings("a"), org.Agents{MaxSteps: len(errs)})
	changed := was
	changed.Runtime.Concurrency = 3
	b.checkError(b.Orgs.UpdateOrg(b.Context(), was, changed, org.Author{}), org.ErrChanged)
}

func (b *testBench) changeSettings(orgID string, by org.Author, change func(*org.Agents)) error {
	return b.Agents.ChangeSettings(b.Context(), orgID, change, by)
}

// settings returns the settings of an org for its agents.
func (b *testBench) settings(orgID string) org.Agents {
	b.Helper()
	record, err := b.Orgs.Org(b.Context(), orgID)
	b.ok(err)
	return record.Runtime.Agents
}

func agentAudited(b *testBench) {
	b.withOrgs("a")
	by := org.Author{Principal: "p", RequestID: "req", At: 5}
	a := newAgent("a", "x")
	a.SystemPrompt = "a prompt that nobody else reads"
	a.Servers = []agent.Server{{ID: "s", Name: "s", Settings: org.MCPServer{URL: "https://example.com/?key=canary", Headers: map[string]string{"X": "canary"}}}}
	a.Hooks = []agent.Hook{{HTTP: &agent.HTTPHook{URL: "https://example.com/?key=canary", Headers: map[string]string{"X": "canary", "Y": "secret:name"}}}}
	b.ok(b.Agents.CreateAgent(b.Context(), a, by))
	a.Model = "other"
	b.ok(b.Agents.UpdateAgent(b.Context(), 1, a, by))
	b.ok(b.Agents.ArchiveAgent(b.Context(), "a", a.ID, b.now(), b.now(), by))
	b.ok(b.Agents.ArchiveAgent(b.Context(), "a", a.ID, b.now(), b.now(), by))
	b.ok(b.Agents.ArchiveAgent(b.Context(), "a", a.ID, time.Time{}, b.now(), by))
	for at := range int64(2) {
		b.ok(b.changeSettings("a", by, func(a *org.Agents) { a.MaxSteps, a.SetAt = 3, map[string]int64{agent.MaxStepsKey: at} }))
	}
	b.checkError(b.Agents.UpdateAgent(b.Context(), 1, a, by), org.ErrChanged)
	b.ok(b.Agents.RemoveAgent(b.Context(), "a", a.ID, by))
	got := []string{}
	for _, row := range b.rows("a", audit.Query{Limit: 10, Kind: audit.KindManagement}, 6) {
		text := string(row.Body)
		if strings.Contains(text, "canary") || strings.Contains(text, "nobody else") {
			b.Errorf("an audit row has what nobody may read: %s", text)
		}
		var m struct {
			Resource, Action string
			Before, After    struct {
				Model string
				Steps string `json:"AGENT_MAX_STEPS"`
			}
		}
		b.ok(json.Unmarshal(row.Body, &m))
		got = append(got, fmt.Sprintf("%s %s %s %s", m.Resource, m.Action, m.Before.Model, m.After.Model+m.After.Steps))
	}
	b.equal(got, []string{
		"agent create  m", "agent update m other", "agent archive  ", "agent restore  ", "agent_settings update  3", "agent delete other ",
	})
}

func agentsReopened(b *testBench) {
	b.withOrgs("a")
	a := b.agent("a", "x")
	a.Model = "two"
	b.ok(b.Agents.UpdateAgent(b.Context(), 1, a, org.Author{}))
	b.ok(b.changeSettings("a", org.Author{}, func(a *org.Agents) { a.MaxSteps = 3 }))
	b.Store = b.maker.Reopen(b.T, b.Store)
	got, err := b.Agents.Agent(b.Context(), "a", a.ID)
	b.ok(err)
	if got.Model != "two" || got.Version != 2 {
		b.Errorf("%+v", got)
	}
	first, err := b.Agents.AgentVersion(b.Context(), "a", a.ID, 1)
	b.ok(err)
	b.equal(first.Model, "m")
	b.equal(b.settings("a"), org.Agents{MaxSteps: 3})
}

func agentsDeclared(b *testBench) {
	b.withOrgs("a", "b")
	declare := func(orgID string, models ...string) []agent.Agent {
		b.Helper()
		b.step(time.Second)
		var all []agent.Agent
		for i, model := range models {
			all = append(all, agent.Agent{ID: fmt.Sprint("n", i), Declared: true, Definition: agent.Definition{Name: fmt.Sprint("n", i), Model: model}})
		}
		out, err := b.Agents.DeclareAgents(b.Context(), orgID, all, b.now())
		b.ok(err)
		return out
	}
	check := func(got []agent.Agent, want ...int) {
		b.Helper()
		for i, a := range got {
			if a.Version != want[i] || a.Org != "a" || !a.Declared {
				b.Errorf("agent %d: %+v, want version %d", i, a, want[i])
			}
		}
	}
	first := declare("a", "m", "m")
	check(first, 1, 1)
	again := declare("a", "m", "m2")
	check(again, 1, 2)
	if !again[0].UpdatedAt.Equal(first[0].UpdatedAt) || !again[1].UpdatedAt.Equal(b.now()) {
		b.Errorf("updated at %v and %v", again[0].UpdatedAt, again[1].UpdatedAt)
	}
	check(declare("a", "m"), 1) // n1 has left the file
	check(declare("a", "m", "m2"), 1, 2)
	check(declare("a", "m", "m"), 1, 3)
	versions, total, err := b.Agents.AgentVersions(b.Context(), "a", "n1", 2, 0)
	b.ok(err)
	b.equal(total, 3)
	if len(versions) != 2 || versions[0].Number != 3 || versions[0].Model != "m" || versions[0].Principal != org.Operator || versions[1].Model != "m2" {
		b.Errorf("versions: %+v", versions)
	}
	old, err := b.Agents.AgentVersion(b.Context(), "a", "n1", 2)
	b.ok(err)
	b.equal(old.Model, "m2")
	_, err = b.Agents.Agent(b.Context(), "a", "n1")
	b.checkError(err, org.ErrNotFound)
	found, total, err := b.Agents.Agents(b.Context(), "a", agent.Query{Limit: 10})
	b.ok(err)
	b.equal(total, 0)
	b.equal(len(found), 0)
	_, _, err = b.Agents.AgentVersions(b.Context(), "b", "n1", 2, 0)
	b.checkError(err, org.ErrNotFound)
	_, err = b.Agents.AgentVersion(b.Context(), "b", "n1", 2)
	b.checkError(err, org.ErrNotFound)
	_, err = b.Agents.DeclareAgents(b.Context(), "c", nil, b.now())
	b.checkError(err, org.ErrNotFound)
	b.ok(b.Orgs.DeleteOrg(b.Context(), "a", org.Author{}))
	b.withOrgs("a")
	check(declare("a", "m"), 1)
}
