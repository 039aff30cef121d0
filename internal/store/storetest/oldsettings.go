package storetest

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// OldAgentSettings checks a migration of the settings of agents, which builds stored as rows of a table. migrate applies it.
func OldAgentSettings(t *testing.T, kept interface {
	org.Store
	agent.Store
}, execute func(statement string), migrate func(),
) {
	t.Helper()
	full := org.Record{ID: "a", Features: []string{"one"}}
	fill(&full.Runtime)
	ofOrg(&full.Runtime)
	full.Runtime.Agents, full.Runtime.SessionTTL, full.Runtime.CompactionExclude = org.Agents{}, org.Forever, []string{"\x00 \"<ä>\\"}
	for _, r := range []org.Record{full, {ID: "b"}, {ID: "none"}} {
		if err := kept.CreateOrg(t.Context(), r, org.Author{}); err != nil {
			t.Fatal(err)
		}
	}
	execute(`CREATE TABLE agent_settings (org text NOT NULL, key text NOT NULL, value text NOT NULL, updated_at bigint NOT NULL)`)
	for i, row := range [][3]string{
		{"a", agent.DefaultModelKey, `a-"<ä>\&`},
		{"a", agent.MaxStepsKey, "9"},
		{"a", agent.TimeoutKey, "3600"},
		{"a", agent.CompactionModelKey, "small"},
		{"a", agent.VisionModelKey, "eye"},
		{"b", agent.VisionModelKey, "null"},
		{"b", agent.MaxStepsKey, "many"}, // no build has stored it
	} {
		execute(fmt.Sprintf(`INSERT INTO agent_settings VALUES ('%s', '%s', '%s', %d)`, row[0], row[1], row[2], 1_700_000_000_123+i))
	}
	migrate()

	at := func(n int64, keys ...string) map[string]int64 {
		all := map[string]int64{}
		for i, key := range keys {
			all[key] = 1_700_000_000_123 + n + int64(i)
		}
		return all
	}
	full.Runtime.Agents = org.Agents{
		DefaultModel: `a-"<ä>\&`, MaxSteps: 9, TimeoutSeconds: 3600, CompactionModel: "small", VisionModel: "eye",
		SetAt: at(0, agent.DefaultModelKey, agent.MaxStepsKey, agent.TimeoutKey, agent.CompactionModelKey, agent.VisionModelKey),
	}
	want := []org.Record{
		full,
		{ID: "b", Runtime: org.Runtime{Agents: org.Agents{VisionModel: "null", SetAt: at(5, agent.VisionModelKey, agent.MaxStepsKey)}}},
		{ID: "none"},
	}
	got, err := kept.Orgs(t.Context())
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
}
