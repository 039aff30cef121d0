package crashtest_test

import (
	"context"
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/mcp"
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
