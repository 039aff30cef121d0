package files_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// What tool calls cost counts in the limit of the run and in the budgets, calls that do not fit are not
// executed, and the model is told why. Failure 15 of other gateways. // P41 P03 P57
func TestToolCallsHaveAPrice(t *testing.T) {
	const model = 0.002 // more than the two model calls of a run cost together
	for name, c := range map[string]struct {
		runtime, server string
		executed        int64
		told            string // what the others are told
		paid            float64
		budget          string // "" = there is none
	}{
		"no limit":               {"", "price_usd: 0.1", 4, "", 0.4, ""},
		"a price of a tool":      {"", "price_usd: 0.1, tool_prices_usd: {echo: 0.05}", 4, "", 0.2, ""},
		"a tool that is free":    {"max_run_cost_usd: 0.35", "price_usd: 0.1, tool_prices_usd: {echo: 0}", 4, "", 0, ""},
		"the limit of the run":   {"max_run_cost_usd: 0.35", "price_usd: 0.1", 3, "the call costs 0.1 USD", 0.3, ""},
		"a budget":               {"budgets: [{scope: key, period: day, usd: 0.35}]", "price_usd: 0.1", 3, "has no room for it", 0.3, "0.3"},
		"a budget, durable runs": {"durable: always, budgets: [{scope: key, period: day, usd: 0.35}]", "price_usd: 0.1", 3, "has no room for it", 0.3, "0.3"},
		"unpriced tools, refused": {
			"max_run_cost_usd: 0.35, unpriced_tools: refuse", "trust: false", 0, "unpriced_tools: refuse", 0, "",
		},
		"unpriced tools, no limit": {"unpriced_tools: refuse", "trust: false", 4, "", 0, ""},
		"unpriced tools":           {"max_run_cost_usd: 0.35", "trust: false", 4, "", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			NoLeaks(t)
			var executed atomic.Int64
			mcp := NewMCP(t, map[string]Handler{"echo": func(context.Context, string) (string, error) {
				executed.Add(1)
				return "said", nil
			}})
			var told atomic.Pointer[[]string]
			up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
				if results := got.Results(t); len(results) > 0 {
					told.Store(&results)
					Counts(30, 20)(w, r, got)
					return
				}
				Asks(Use("echo", `{"n":1}`), Use("echo", `{"n":2}`), Use("echo", `{"n":3}`), Use("echo", `{"n":4}`)).Write(w)
			})
			rates := filepath.Join(t.TempDir(), "rates.yaml")
			if err := os.WriteFile(rates, []byte("- {model: m, provider: up, from: 2020-01-01, input: 1, output: 10}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			runtime := strings.TrimPrefix(c.runtime+", max_calls: 20", ", ")
			g := MustRun(t, "rates: "+rates+"\n"+Site{Upstream: up.URL, Runtime: runtime, Servers: []string{Server("tools", mcp.URL, c.server)}}.Yaml())
			a := g.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","user":"u","max_tokens":100,"messages":[{"role":"user","content":"x"}]}`),
				"Authorization", "Bearer owner-key", "turnpike-extensions", "cost")
			if a.Status != 200 {
				t.Fatalf("%d %s\n%s", a.Status, a.Body, g.Log.String())
			}
			if n := executed.Load(); n != c.executed {
				t.Errorf("%d calls were executed, want %d", n, c.executed)
			}
			refused := 0
			for _, text := range *told.Load() {
				if c.told != "" && strings.Contains(text, c.told) {
					refused++
				}
			}
			if c.told != "" && refused == 0 {
				t.Errorf("the model was told %q", *told.Load())
			}
			if cost := a.Header.Get("turnpike-cost-usd"); !near(cost, c.paid, model) {
				t.Errorf("the run cost %q, want about %v", cost, c.paid)
			}
			var usage struct {
				Data []struct {
					Cost float64 `json:"cost_usd"`
					Tool float64 `json:"tool_cost_usd"`
				}
			}
			u := g.Send("GET", "/api/usage?by=model,end_user", nil, "Authorization", "Bearer owner-key")
			if err := json.Unmarshal(u.Body, &usage); err != nil || len(usage.Data) != 1 || fmt.Sprint(usage.Data[0].Tool) != fmt.Sprint(c.paid) || usage.Data[0].Cost < c.paid {
				t.Errorf("usage: %s %v", u.Body, err)
			}
			if c.budget == "" {
				return
			}
			for id, b := range BudgetsOf(t, g) {
				if spent := fmt.Sprint(b["spent_usd"]); !near(spent, c.paid, model) || b["reserved_usd"].(float64) > 0.05 {
					t.Errorf("budget %s: %v", id, b)
				}
			}
		})
	}
}

// near reports whether a text is a number from least to a little more.
func near(text string, least, more float64) bool {
	var n float64
	_, err := fmt.Sscan(text, &n)
	return err == nil && n >= least-1e-9 && n <= least+more
}
