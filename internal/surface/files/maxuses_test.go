package files_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// searchesOnce asks for n searches in its first answer, for one more in the second, and is done then.
func searchesOnce(n int) func(http.ResponseWriter, *http.Request, Received) {
	return func(w http.ResponseWriter, _ *http.Request, got Received) {
		search := Use("web_search", `{"query":"q"}`)
		switch strings.Count(string(got.Body), `"role":"tool"`) {
		case 0:
			all := make([]Call, n)
			for i := range all {
				all[i] = Use("web_search", fmt.Sprintf(`{"query":"q%d"}`, i))
			}
			Asks(all...).Write(w)
		case n:
			Asks(search).Write(w)
		default:
			Says("done").Write(w)
		}
	}
}

// The org and the request limit the calls of a tool. The model is told, and the run goes on. // P38
func TestMaxUsesOfATool(t *testing.T) {
	NoLeaks(t)
	search := NewSearch(t)
	up := NewUpstream(t, searchesOnce(3))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.WithBuiltins(searches(search, ", hosted: true, max_uses: 2"))))
	const limit = "max_uses of the tool web_search is %d in this run, and is used up"
	for _, c := range []struct {
		path, body string
		most       int
	}{
		{"/v1/chat/completions", Question, 2},
		{"/v1/chat/completions", strings.TrimSuffix(Question, "}") + `,"web_search_options":{"max_uses":1}}`, 1},
		{"/v1/chat/completions", strings.TrimSuffix(Question, "}") + `,"web_search_options":{"max_uses":9}}`, 2},
		{"/v1/responses", `{"model":"m","input":"x"}`, 2},
		{"/v1/responses", `{"model":"m","input":"x","tools":[{"type":"web_search","max_uses":1}]}`, 1},
	} {
		before, _ := search.All()
		asked := len(up.Requests())
		a := d.Send("POST", c.path, strings.NewReader(c.body))
		if a.Status != 200 || !strings.Contains(string(a.Body), "done") {
			t.Fatalf("%s %s: %d %s", c.path, c.body, a.Status, a.Body)
		}
		after, _ := search.All()
		all := up.Requests()[asked:]
		if len(after)-len(before) != c.most || len(all) != 3 || strings.Count(string(all[2].Body), fmt.Sprintf(limit, c.most)) != 4-c.most {
			t.Errorf("%s %s: %d searches, want %d; the provider got %s", c.path, c.body, len(after)-len(before), c.most, all[len(all)-1].Body)
		}
		if c.most == 1 && c.path == "/v1/responses" && (strings.Count(string(a.Body), `"type":"web_search_call","status":"completed"`) != 1 || strings.Count(string(a.Body), `"type":"web_search_call","status":"failed"`) != 3) {
			t.Errorf("the output is %s", a.Body)
		}
	}
	for path, body := range map[string]string{
		"/v1/chat/completions": strings.TrimSuffix(Question, "}") + `,"web_search_options":{"max_uses":0}}`,
		"/v1/responses":        `{"model":"m","input":"x","tools":[{"type":"web_search","max_uses":"many"}]}`,
	} {
		if a := d.Send("POST", path, strings.NewReader(body)); a.Status != 400 || !strings.Contains(string(a.Body), `max_uses"`) {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
}

// What the org says holds for its agents. // P38
func TestMaxUsesOfAToolOfAnAgent(t *testing.T) {
	NoLeaks(t)
	search := NewSearch(t)
	up := NewUpstream(t, searchesOnce(3))
	d := Manage(MustRun(t, Site{Upstream: up.URL}.WithBuiltins(searches(search, ", enabled: false, max_uses: 2"))))
	id := d.NewAgent(`,"tools":[{"name":"web_search"}]`)
	if a := d.StreamAgent(id, `{"message":"go"}`); !strings.Contains(string(a.Body), "done") || strings.Count(string(up.Requests()[2].Body), "max_uses of the tool web_search is 2") != 2 {
		t.Errorf("%s, the provider got %s", a.Body, up.Requests()[2].Body)
	}
	if got, _ := search.All(); len(got) != 2 {
		t.Errorf("%d searches, want 2", len(got))
	}
}

// Three searches with a price: the one that the run cannot pay is not executed, and the others count in its cost. // P41
func TestPricedSearchesStopBeforeTheOneThatIsNotPaid(t *testing.T) {
	NoLeaks(t)
	search := NewSearch(t)
	rates := filepath.Join(t.TempDir(), "rates.yaml")
	if err := os.WriteFile(rates, []byte("- {model: m, provider: up, from: 2020-01-01, input: 1, output: 10}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	up := NewUpstream(t, searchesOnce(3))
	runtime := "{max_run_cost_usd: 0.25, " + strings.TrimPrefix(searches(search, ", price_usd: 0.1"), "{")
	d := Manage(MustRun(t, "rates: "+rates+"\n"+Site{Upstream: up.URL}.WithBuiltins(runtime)))
	a := d.Send("POST", "/v1/chat/completions", strings.NewReader(strings.TrimSuffix(Question, "}")+`,"max_tokens":100}`), "turnpike-extensions", "cost")
	if got, _ := search.All(); a.Status != 200 || len(got) != 2 || !near(a.Header.Get("turnpike-cost-usd"), 0.2, 0.01) {
		t.Errorf("%d searches, the run cost %q: %d %s", len(got), a.Header.Get("turnpike-cost-usd"), a.Status, a.Body)
	}
	if told := string(up.Requests()[1].Body); !strings.Contains(told, "the call costs 0.1 USD") {
		t.Errorf("the model was told %s", told)
	}
	var usage struct {
		Data []struct {
			Tool float64 `json:"tool_cost_usd"`
		}
	}
	u := d.Send("GET", "/api/usage?by=model", nil)
	if err := json.Unmarshal(u.Body, &usage); err != nil || len(usage.Data) != 1 || fmt.Sprint(usage.Data[0].Tool) != "0.2" {
		t.Errorf("usage: %s %v", u.Body, err)
	}
}
