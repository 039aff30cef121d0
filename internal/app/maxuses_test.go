package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// searchesOnce asks for n searches in its first answer, for one more in the second, and is done then.
func searchesOnce(n int) func(http.ResponseWriter, *http.Request, received) {
	return func(w http.ResponseWriter, _ *http.Request, got received) {
		search := call{"web_search", `{"query":"q"}`}
		switch strings.Count(string(got.body), `"role":"tool"`) {
		case 0:
			all := make([]call, n)
			for i := range all {
				all[i] = call{"web_search", fmt.Sprintf(`{"query":"q%d"}`, i)}
			}
			asks(all...).write(w)
		case n:
			asks(search).write(w)
		default:
			says("done").write(w)
		}
	}
}

// The org and the request limit the calls of a tool. The model is told, and the run goes on. // P38
func TestMaxUsesOfATool(t *testing.T) {
	noLeaks(t)
	search := newSearch(t)
	up := newUpstream(t, searchesOnce(3))
	d := manage(MustRun(t, site{upstream: up.URL}.withBuiltins(searches(search, ", hosted: true, max_uses: 2"))))
	const limit = "max_uses of the tool web_search is %d in this run, and is used up"
	for _, c := range []struct {
		path, body string
		most       int
	}{
		{"/v1/chat/completions", question, 2},
		{"/v1/chat/completions", strings.TrimSuffix(question, "}") + `,"web_search_options":{"max_uses":1}}`, 1},
		{"/v1/chat/completions", strings.TrimSuffix(question, "}") + `,"web_search_options":{"max_uses":9}}`, 2},
		{"/v1/responses", `{"model":"m","input":"x"}`, 2},
		{"/v1/responses", `{"model":"m","input":"x","tools":[{"type":"web_search","max_uses":1}]}`, 1},
	} {
		before, _ := search.all()
		asked := len(up.requests())
		a := d.send("POST", c.path, strings.NewReader(c.body))
		if a.status != 200 || !strings.Contains(string(a.body), "done") {
			t.Fatalf("%s %s: %d %s", c.path, c.body, a.status, a.body)
		}
		after, _ := search.all()
		all := up.requests()[asked:]
		if len(after)-len(before) != c.most || len(all) != 3 || strings.Count(string(all[2].body), fmt.Sprintf(limit, c.most)) != 4-c.most {
			t.Errorf("%s %s: %d searches, want %d; the provider got %s", c.path, c.body, len(after)-len(before), c.most, all[len(all)-1].body)
		}
		if c.most == 1 && c.path == "/v1/responses" && (strings.Count(string(a.body), `"type":"web_search_call","status":"completed"`) != 1 || strings.Count(string(a.body), `"type":"web_search_call","status":"failed"`) != 3) {
			t.Errorf("the output is %s", a.body)
		}
	}
	for path, body := range map[string]string{
		"/v1/chat/completions": strings.TrimSuffix(question, "}") + `,"web_search_options":{"max_uses":0}}`,
		"/v1/responses":        `{"model":"m","input":"x","tools":[{"type":"web_search","max_uses":"many"}]}`,
	} {
		if a := d.send("POST", path, strings.NewReader(body)); a.status != 400 || !strings.Contains(string(a.body), `max_uses"`) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
}

// What the org says holds for its agents. // P38
func TestMaxUsesOfAToolOfAnAgent(t *testing.T) {
	noLeaks(t)
	search := newSearch(t)
	up := newUpstream(t, searchesOnce(3))
	d := manage(MustRun(t, site{upstream: up.URL}.withBuiltins(searches(search, ", enabled: false, max_uses: 2"))))
	id := d.newAgent(`,"tools":[{"name":"web_search"}]`)
	if a := d.streamAgent(id, `{"message":"go"}`); !strings.Contains(string(a.body), "done") || strings.Count(string(up.requests()[2].body), "max_uses of the tool web_search is 2") != 2 {
		t.Errorf("%s, the provider got %s", a.body, up.requests()[2].body)
	}
	if got, _ := search.all(); len(got) != 2 {
		t.Errorf("%d searches, want 2", len(got))
	}
}

// Three searches with a price: the one that the run cannot pay is not executed, and the others count in its cost. // P41
func TestPricedSearchesStopBeforeTheOneThatIsNotPaid(t *testing.T) {
	noLeaks(t)
	search := newSearch(t)
	rates := filepath.Join(t.TempDir(), "rates.yaml")
	if err := os.WriteFile(rates, []byte("- {model: m, provider: up, from: 2020-01-01, input: 1, output: 10}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	up := newUpstream(t, searchesOnce(3))
	runtime := "{max_run_cost_usd: 0.25, " + strings.TrimPrefix(searches(search, ", price_usd: 0.1"), "{")
	d := manage(MustRun(t, "rates: "+rates+"\n"+site{upstream: up.URL}.withBuiltins(runtime)))
	a := d.send("POST", "/v1/chat/completions", strings.NewReader(strings.TrimSuffix(question, "}")+`,"max_tokens":100}`), "turnpike-extensions", "cost")
	if got, _ := search.all(); a.status != 200 || len(got) != 2 || !near(a.header.Get("turnpike-cost-usd"), 0.2, 0.01) {
		t.Errorf("%d searches, the run cost %q: %d %s", len(got), a.header.Get("turnpike-cost-usd"), a.status, a.body)
	}
	if told := string(up.requests()[1].body); !strings.Contains(told, "the call costs 0.1 USD") {
		t.Errorf("the model was told %s", told)
	}
	var usage struct {
		Data []struct {
			Tool float64 `json:"tool_cost_usd"`
		}
	}
	u := d.send("GET", "/api/usage?by=model", nil)
	if err := json.Unmarshal(u.body, &usage); err != nil || len(usage.Data) != 1 || fmt.Sprint(usage.Data[0].Tool) != "0.2" {
		t.Errorf("usage: %s %v", u.body, err)
	}
}
