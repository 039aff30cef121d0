package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/gateway"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/provider/openai"
	"github.com/turnpike-gateway/turnpike/resource"
	"github.com/turnpike-gateway/turnpike/sqlite"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// threeRounds are three rounds of a run, the first with a failed model call, and then a model call without a run.
const threeRounds = `
fail 503

call c1 weather {"city":"Bern"}
call c2 weather {"city":"Basel"}
usage 100 20

call c3 weather {"city":"Chur"}
usage 200 20

text Sunny.
usage 300 10

text Hello.
usage 30 5
`

// recording is a gateway whose model and tool are scripted, and an agent with the same model and tool beside it.
type recording struct {
	*gateway.Gateway
	text  string // of its configuration
	log   *bytes.Buffer
	agent *turnpike.Agent
	store turnpike.Store
}

func newRecording(t *testing.T) *recording {
	t.Helper()
	upstream := func() string {
		u := upstreamtest.New(turnpiketest.NewScript(t, threeRounds), upstreamtest.Options{})
		t.Cleanup(u.Close)
		return u.URL
	}
	mcpServer := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "weather", Result: "21 °C"})
	t.Cleanup(mcpServer.Close)
	rates := filepath.Join(t.TempDir(), "rates.yaml")
	if err := os.WriteFile(rates, []byte("- {model: m, from: 2000-01-01, input: 1000, output: 5000}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &recording{log: new(bytes.Buffer), text: fmt.Sprintf(`
data: %q
rates: %s
outbound: {ssrf: {allowlist_cidrs: [127.0.0.1/32]}}
providers: [{name: p, kind: openai, base_url: %s, api_key: k, models: [m]}]
orgs:
  - id: acme
    features: [mcp_outbound]
    keys: [{name: app, key: tp_0123456789abcdef0123456789, role: admin}]
    mcp_servers: [{name: shop, url: %s}]
  - {id: beta, keys: [{name: app, key: tp_beta456789abcdef0123456789, role: admin}]}
`, t.TempDir(), rates, upstream(), mcpServer.URL)}
	config, err := gateway.Parse(r.text)
	if err != nil {
		t.Fatal(err)
	}
	config.Log = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelError}))
	if r.Gateway, err = gateway.New(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	store, err := sqlite.Open(filepath.Join(t.TempDir(), "runs.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	weather := func(context.Context, struct {
		City string `json:"city"`
	}) (string, error) {
		return "21 °C", nil
	}
	r.store = store
	r.agent = &turnpike.Agent{
		Name: "helper", Model: openai.Model("m", openai.Options{APIKey: "k", BaseURL: upstream(), Provider: "p"}),
		Tools: []tool.Tool{tool.Func("weather", "", weather)}, Audit: r.Audit("acme"),
		Rates: map[string]turnpike.Rate{"m": {Input: turnpike.USD("1000"), Output: turnpike.USD("5000")}},
	}
	return r
}

// settle waits until all rows of the org are written: a write of a resource is recorded after them.
func (r *recording) settle(t *testing.T) {
	t.Helper()
	one := resource.New("thing", witness{func() int { return 0 }}).Audit(r.Audit("acme"))
	if err := one.As(tool.Caller{ID: "settle", Permissions: []string{"*"}}).Call(t.Context(), resource.Create, nil, nil); err != nil {
		t.Fatal(err)
	}
}

// ask sends a chat completion with the key of the org.
func (r *recording) ask(t *testing.T) {
	t.Helper()
	body := `{"model":"m","messages":[{"role":"user","content":"go"}]}`
	req := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer tp_0123456789abcdef0123456789")
	w := httptest.NewRecorder()
	if r.ServeHTTP(w, req); w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
}

// usage returns the sums of an org by key.
func (r *recording) usage(t *testing.T, key, by string) (sums []map[string]any) {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, "/api/usage?by="+by, nil)
	req.Header.Set("Authorization", "Bearer "+key)
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	var page struct{ Data []map[string]any }
	if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != http.StatusOK {
		t.Fatal(w.Code, w.Body)
	}
	return page.Data
}

// A run of an agent leaves the rows of a run over HTTP: one for each round, and none for the run, and one for each tool call. The org
// has both in its sums, another org has neither, and the chain of the org is signed. // L04 L05
func TestAnAgentLeavesTheRowsOfARunOverHTTP(t *testing.T) {
	for _, durable := range []bool{false, true} {
		r := newRecording(t)
		if durable {
			r.agent.Store = r.store
		}
		r.ask(t)
		ada := turnpike.Caller{ID: "ada", Org: "acme", Permissions: []string{"*"}}
		result, err := r.agent.Run(t.Context(), turnpike.Text("go"), turnpike.As(ada))
		if err != nil {
			t.Fatal(err)
		}
		r.settle(t)
		clients, agents := rowsOf(t, r, "key_id=app"), rowsOf(t, r, "key_id=ada")
		if len(agents) != 6 || len(clients) != 6 {
			t.Fatalf("durable %t: %d rows of a run over HTTP, %d of one of the agent: %+v", durable, len(clients), len(agents), agents)
		}
		rounds := 0
		for i, one := range agents {
			if one.Kind == "audit_log.request" {
				if rounds++; one.Body["via"] != "library" {
					t.Errorf("via %v", one.Body["via"])
				}
			}
			if one.Run == nil || *one.Run != *agents[0].Run || one.Kind != clients[i].Kind {
				t.Errorf("row %d: %+v, over HTTP %+v", i, one, clients[i])
			}
			if diff := cmp.Diff(inCommon(clients[i]), inCommon(one)); diff != "" {
				t.Errorf("row %d: %s", i, diff)
			}
		}
		if rounds != 3 || rounds != result.Rounds {
			t.Errorf("%d rows of model calls, %d rounds", rounds, result.Rounds)
		}
		if byRun := rowsOf(t, r, "run_id="+result.RunID); len(byRun) != 6 {
			t.Errorf("%d rows have the run", len(byRun))
		}
		sums := r.usage(t, "tp_0123456789abcdef0123456789", "key")
		if len(sums) != 2 {
			t.Fatalf("%+v", sums)
		}
		ofAgent, ofClient := sums[0], sums[1]
		if ofAgent["key_id"] != "ada" || ofAgent["cost_usd"] != float64(result.Cost.Nano())/1e9 || ofAgent["tool_calls"] != 3.0 ||
			ofAgent["requests"] != 3.0 {
			t.Errorf("%+v of %+v", ofAgent, result.Cost)
		}
		ofClient["key_id"] = "ada"
		if diff := cmp.Diff(ofClient, ofAgent); diff != "" {
			t.Error(diff)
		}
		if named := r.usage(t, "tp_0123456789abcdef0123456789", "agent"); len(named) != 2 || named[1]["agent_id"] != "helper" {
			t.Errorf("by agent: %+v", named)
		}
		if other := r.usage(t, "tp_beta456789abcdef0123456789", "key"); len(other) != 0 {
			t.Errorf("another org has %+v", other)
		}
		if got := command(t, r.Gateway, r.text)("audit", "verify", "--org", "acme"); !strings.Contains(got, ": ok") {
			t.Error(got)
		}
	}
}

// inCommon returns what rows of both have in common.
func inCommon(r auditRow) map[string]any {
	for name := range r.Body {
		if slices.Contains([]string{"via", "latency_ms", "ttft_ms", "agent_run_id", "server_id", "result_digest"}, name) ||
			name == "tool_call_index" && r.Body[name] != nil { // calls of a turn end in any order
			r.Body[name] = "there"
		}
	}
	return r.Body
}

// A model call without a run leaves one row, with the id of its result; so does one that fails. // L04
func TestOneModelCallOfAnAgentLeavesOneRow(t *testing.T) {
	r := newRecording(t)
	for story, want := range map[string]map[string]any{
		"call c1 weather {}\nusage 100 20\n": {
			"status": "ok", "input_tokens": 100.0, "output_tokens": 20.0, "tool_calls": 1.0, "cost_nano_usd": 2e8,
		},
		"fail 400\n": {"status": "failed", "error_class": "invalid", "tool_calls": 0.0},
	} {
		a := &turnpike.Agent{Model: turnpiketest.NewScript(t, story), Tools: r.agent.Tools, Rates: r.agent.Rates, Audit: r.Audit("acme")}
		a.Rates["model"] = a.Rates["m"]
		result, err := a.Run(t.Context(), turnpike.Text("go"), turnpike.Mode(turnpike.Return))
		if failed, ok := errors.AsType[turnpike.Failure](err); ok {
			result = failed.Result()
		}
		r.settle(t)
		rows := rowsOf(t, r, "request_id="+result.RunID)
		if len(rows) != 1 || rows[0].Key != "program" || rows[0].Run != nil {
			t.Fatalf("%+v", rows)
		}
		want["surface"], want["via"], want["round_index"], want["attempts"] = "relay", "library", nil, 1.0
		for name, value := range want {
			if rows[0].Body[name] != value && (value != 0.0 || rows[0].Body[name] != nil) {
				t.Errorf("%s is %v, want %v", name, rows[0].Body[name], value)
			}
		}
	}
}

// The approval of a person is in the log as that of a run over HTTP is, and a run that another process resumes leaves each row once. // L04
func TestAResumedRunLeavesEachRowOnce(t *testing.T) {
	r := newRecording(t)
	agent := func(story string) *turnpike.Agent {
		refund := tool.Func("refund", "", func(context.Context, struct{}) (string, error) { return "done", nil })
		return &turnpike.Agent{
			Model: turnpiketest.NewScript(t, story), Tools: []tool.Tool{refund}, Store: r.store, Audit: r.Audit("acme"),
			NeedsApproval: func(string, json.RawMessage) bool { return true },
		}
	}
	_, err := agent("call c1 refund {}\n").Run(t.Context(), turnpike.Text("go"))
	waiting, ok := errors.AsType[*turnpike.Waiting](err)
	if !ok {
		t.Fatal(err)
	}
	next := agent("text Done.\n")
	decision := turnpike.Approve(waiting.Approvals[0].ID)
	decision.By = "@operator"
	_, err = next.Resume(t.Context(), waiting.RunID, decision).Result()
	if err == nil || !strings.Contains(err.Error(), "stands for the operator") {
		t.Errorf("a decision in the name of the operator: %v", err)
	}
	decision.By = "ben"
	if _, err := next.Resume(t.Context(), waiting.RunID, decision).Result(); err != nil {
		t.Fatal(err)
	}
	r.settle(t)
	var got []string
	for _, one := range rowsOf(t, r, "run_id="+waiting.RunID) {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %v", one.Key, strings.TrimPrefix(one.Kind, "audit_log."), one.Body["action"])))
	}
	want := []string{
		"program request <nil>", "program agent.approval asked", "ben agent.approval approved", "program agent.approval executed",
		"program agent.tool_call <nil>", "program request <nil>",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// A run that cannot be recorded does not begin: its model is not asked.
func TestARunThatTheAuditLogDoesNotTake(t *testing.T) {
	r := newRecording(t)
	m := turnpiketest.NewScript(t, "text Hi.\n")
	agent := func(org string) *turnpike.Agent {
		return &turnpike.Agent{Model: m, Store: r.store, Audit: r.Audit(org)}
	}
	try := func(want string, a *turnpike.Agent, opts ...turnpike.Option) {
		t.Helper()
		_, run := a.Run(t.Context(), turnpike.Text("go"), opts...)
		_, call := a.Run(t.Context(), turnpike.Text("go"), append(opts, turnpike.Mode(turnpike.Return))...)
		_, start := a.Start(t.Context(), turnpike.Text("go"), opts...)
		for _, err := range []error{run, call, start} {
			if lost, ok := errors.AsType[*turnpike.LostError](err); !ok || !strings.Contains(lost.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
	try(`no org "gamma"`, agent("gamma"))
	try("stands for the operator", agent("acme"), turnpike.As(turnpike.Caller{ID: "@operator"}))
	known := agent("acme")
	_ = r.Close()
	try("the gateway is closed", known)
	if n := len(m.Requests()); n > 0 {
		t.Errorf("the model was asked %d times", n)
	}
}

// A gateway that is closed during a run takes no more of its rows: the run goes on, and the log has a line for each.
func TestAGatewayThatIsClosedDuringARun(t *testing.T) {
	r := newRecording(t)
	end := tool.Func("end", "", func(context.Context, struct{}) (string, error) { return "done", r.Close() })
	m := turnpiketest.NewScript(t, "call c1 end {}\n\ntext Done.\n")
	a := &turnpike.Agent{Model: m, Tools: []tool.Tool{end}, Store: r.store, Audit: r.Audit("acme")}
	if result, err := a.Run(t.Context(), turnpike.Text("go")); err != nil || result.Text != "Done." {
		t.Errorf("%+v, %v", result, err)
	}
	if n := strings.Count(r.log.String(), "an audit row of a run of the program may be missing"); n != 2 { // of the call and the second round
		t.Errorf("%d lines: %s", n, r.log)
	}
}
