package crashtest_test

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/mcp"
	"github.com/turnpike-gateway/turnpike/sqlite"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
	"github.com/turnpike-gateway/turnpike/turnpiketest/crashtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type order struct {
	ID string `json:"id"`
}

func pay() *tool.Function[order] {
	return tool.Func("pay", "", func(_ context.Context, in order) (string, error) { return "paid " + in.ID, nil })
}

// Agents of different shapes: each record of the journal is killed once.
func TestCrash(t *testing.T) {
	server := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "now", Result: "noon"})
	defer server.Close()
	clock := mcp.Server(server.URL).Named("clock").Reads("now")
	defer func() { _ = clock.Close() }()
	one := turnpiketest.Call("pay", order{"A"})
	for _, c := range []struct {
		name   string
		script []turnpiketest.Step
		agent  *turnpike.Agent
	}{
		{"no tools", []turnpiketest.Step{turnpiketest.Say("Hello.")}, &turnpike.Agent{}},
		{"a tool that only reads", []turnpiketest.Step{one, one, turnpiketest.Say("Done.")}, &turnpike.Agent{Tools: []tool.Tool{pay().ReadOnly()}}},
		{"a tool with a key", []turnpiketest.Step{turnpiketest.Turn(one, turnpiketest.Call("pay", order{"B"})), turnpiketest.Say("Done.")},
			&turnpike.Agent{Tools: []tool.Tool{pay().Key(func(in order) string { return in.ID })}}},
		{"a tool that must not be repeated", []turnpiketest.Step{one, turnpiketest.Say("Done.")}, &turnpike.Agent{Tools: []tool.Tool{pay()}}},
		{"approvals", []turnpiketest.Step{turnpiketest.Turn(one, turnpiketest.Call("pay", order{"B"})), turnpiketest.Say("Done.")},
			&turnpike.Agent{Tools: []tool.Tool{pay().Idempotent().ApproveIf(func(order) bool { return true })}}},
		{"an MCP server", []turnpiketest.Step{turnpiketest.Call("now", nil), turnpiketest.Say("Noon.")},
			&turnpike.Agent{Sources: []tool.Source{clock}, Outbound: turnpike.Outbound{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := turnpiketest.Model(t, c.script...)
			records := crashtest.Crash(t, func() *turnpike.Agent {
				return &turnpike.Agent{Model: m, Tools: c.agent.Tools, Sources: c.agent.Sources, Outbound: c.agent.Outbound}
			}, turnpike.Text("go"))
			if records < 4 {
				t.Errorf("only %d records", records)
			}
			t.Logf("%d records", records)
		})
	}
}

// J14: a run that is resumed does not append its turns twice, and loses none, wherever it was killed.
func TestTheConversationOfARunThatIsKilled(t *testing.T) {
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "runs.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	kept := store.Conversations(sqlite.ConversationOptions{})
	one := turnpiketest.Call("pay", order{"A"})
	m := turnpiketest.Model(t, one, turnpiketest.Turn(one, turnpiketest.Call("pay", order{"B"})), turnpiketest.Say("Done."))
	approve := func(in order) bool { return in.ID == "B" }
	records := crashtest.Crash(t, func() *turnpike.Agent {
		return &turnpike.Agent{Model: m, Conversation: kept, Tools: []tool.Tool{pay().Idempotent().ApproveIf(approve)}}
	}, turnpike.Text("go"))
	runs, err := kept.List(t.Context(), "program", "", 0)
	if err != nil || len(runs) != records+2 { // one run without a crash, and one that is not killed any more
		t.Fatalf("%d runs of %d, %v", len(runs), records, err)
	}
	for _, r := range runs {
		turns, err := kept.Turns(t.Context(), "program", r.ID)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i, turn := range turns {
			if turn.Number != i {
				t.Errorf("run %s: turn %d has the number %d", r.ID, i, turn.Number)
			}
			got = append(got, fmt.Sprint(turn.Role, len(turn.Items)))
		}
		if strings.Join(got, " ") != "user1 assistant1 tool1 assistant2 tool2 assistant1" {
			t.Errorf("run %s: %s", r.ID, got)
		}
	}
}
