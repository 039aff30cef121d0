package crashtest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
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

// A run that is resumed does not append its turns twice, and loses none, wherever it was killed. // J14
func TestTheConversationOfARunThatIsKilled(t *testing.T) {
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "runs.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	kept := sqlite.NewSessions(store, sqlite.SessionOptions{})
	one := turnpiketest.Call("pay", order{"A"})
	m := turnpiketest.Model(t, one, turnpiketest.Turn(one, turnpiketest.Call("pay", order{"B"})), turnpiketest.Say("Done."))
	approve := func(in order) bool { return in.ID == "B" }
	records := crashtest.Crash(t, func() *turnpike.Agent {
		return &turnpike.Agent{Model: m, Conversation: kept, Tools: []tool.Tool{pay().Idempotent().ApproveIf(approve)}}
	}, turnpike.Text("go"))
	runs, err := kept.List(t.Context(), turnpike.Program().Key(), "", 0)
	if err != nil || len(runs) != records+2 { // one run without a crash, and one that is not killed any more
		t.Fatalf("%d runs of %d, %v", len(runs), records, err)
	}
	for _, r := range runs {
		turns, err := kept.Turns(t.Context(), turnpike.SessionKey{Caller: turnpike.Program().Key(), ID: r.ID})
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

// Wherever a run is killed, a hook is asked once for each call, and the calls are executed as it decided. // H12
func TestTheHooksOfARunThatIsKilled(t *testing.T) {
	a, b := turnpiketest.Call("pay", order{"A"}), turnpiketest.Call("pay", order{"B"})
	m := turnpiketest.Model(t, turnpiketest.Turn(a, b), turnpiketest.Say("Done."))
	var mu sync.Mutex
	before, after := map[string]int{}, map[string]int{} // by run and arguments
	answers := map[string]int{}                         // by run
	hooks := turnpike.Hooks{
		PreTool: func(_ context.Context, c turnpike.HookCall) (json.RawMessage, error) {
			mu.Lock()
			defer mu.Unlock()
			before[c.RunID+string(c.Arguments)]++
			if strings.Contains(string(c.Arguments), "A") {
				return json.RawMessage(`{"id":"C"}`), nil
			}
			return nil, nil
		},
		PostTool: func(_ context.Context, c turnpike.HookCall, result string) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			after[c.RunID+string(c.Arguments)]++
			return "it was " + result, nil
		},
		PreAnswer: func(_ context.Context, r turnpike.HookRun, answer string) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			answers[r.RunID]++
			return answer + "!", nil
		},
	}
	records := crashtest.Crash(t, func() *turnpike.Agent {
		return &turnpike.Agent{Model: m, Hooks: hooks, Tools: []tool.Tool{pay().Idempotent()}, Parallelism: turnpike.Serial}
	}, turnpike.Text("go"))
	for _, asked := range []map[string]int{before, after} {
		if len(asked) != 2*(records+2) { // one run without a crash, and one that is not killed any more
			t.Errorf("hooks were asked about %d calls in %d runs", len(asked), records+2)
		}
		for call, n := range asked {
			if n != 1 {
				t.Errorf("a hook was asked %d times about %s", n, call)
			}
		}
	}
	for run, n := range answers {
		if n != 1 || len(answers) != records+2 {
			t.Errorf("%d runs; a hook was asked %d times about the answer of %s", len(answers), n, run)
		}
	}
	for call := range after {
		if strings.Contains(call, `"A"`) {
			t.Errorf("the arguments of the model were used: %s", call)
		}
	}
}
