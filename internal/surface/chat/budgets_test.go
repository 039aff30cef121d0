package chat_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// inBudget starts a gateway whose model m costs 1 USD per million tokens of input and 10 of output.
func inBudget(t *testing.T, data string, up *Upstream, budgets string) *Gateway {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rates.yaml")
	if err := os.WriteFile(file, []byte("- {model: m, provider: up, from: 2020-01-01, input: 1, output: 10}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return MustRunIn(t, data, "rates: "+file+"\n"+Site{Upstream: up.URL, Runtime: budgets + ", concurrency: 1000", Servers: []string{Server("tools", NewMCP(t, map[string]Handler{"echo": Echo}).URL)}}.Yaml(), Environment())
}

// 200 requests at once against one cap, as runs, as durable runs and as relays, of a key and of an end user,
// while the provider counts 20 percent more than was reserved. What is spent and reserved exceeds the cap by
// at most the overrun, and no call starts at the cap. Failures 7 and 8 of other gateways. // P03 P57
func TestParallelRequestsStayWithinABudget(t *testing.T) {
	for _, scope := range []string{"key", "end_user"} {
		for _, how := range []string{"runs", "durable runs", "relays"} {
			t.Run(scope+"/"+how, func(t *testing.T) {
				NoLeaks(t)
				up := NewUpstream(t, Counts(30, 120))
				g := inBudget(t, NewData(t), up, "budgets: [{scope: "+scope+", period: day, usd: 0.05}]")
				done, watched := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(watched)
					for {
						for id, b := range BudgetsOf(t, g) {
							used, most := b["spent_usd"].(float64)+b["reserved_usd"].(float64), 0.05+b["overrun_usd"].(float64)
							if used > most+1e-9 {
								t.Errorf("%s: %v of %v", id, used, most)
							}
						}
						select {
						case <-done:
							return
						case <-time.After(time.Millisecond):
						}
					}
				}()
				statuses := map[int]int{}
				var mu sync.Mutex
				var all sync.WaitGroup
				for i := range 200 {
					all.Go(func() {
						header := []string{"Authorization", "Bearer member-key"}
						switch how {
						case "relays":
							header = append(header, "turnpike-mcp-disabled", "true")
						case "durable runs":
							header = append(header, "Idempotency-Key", fmt.Sprint("k", i))
						}
						a := g.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","user":"u","max_tokens":100,"messages":[{"role":"user","content":"x"}]}`), header...)
						mu.Lock()
						statuses[a.Status]++
						mu.Unlock()
						if a.Status == 429 && (!strings.Contains(string(a.Body), "budget_exceeded") || a.Header.Get("Retry-After") == "" || a.Header.Get("X-Should-Retry") != "false") {
							t.Errorf("%v %s", a.Header, a.Body)
						}
					})
				}
				all.Wait()
				close(done)
				<-watched
				answered := len(up.Requests())
				if statuses[200] != answered || statuses[200]+statuses[429] != 200 || answered < 10 || answered > 50 {
					t.Errorf("%v, and the provider was called %d times", statuses, answered)
				}
				for range 3 { // no call starts at the cap, also after everything is settled
					g.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","user":"u","max_tokens":4000,"messages":[{"role":"user","content":"x"}]}`), "Authorization", "Bearer member-key")
				}
				if len(up.Requests()) != answered {
					t.Errorf("%d calls at the cap", len(up.Requests())-answered)
				}
			})
		}
	}
}

// The refusal says which budget it is, the audit log says it once, and another end user is not concerned. // P03
func TestABudgetThatIsUsedUp(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Counts(100, 400)) // 0.0041 USD
	g := inBudget(t, NewData(t), up, "budgets: [{scope: end_user, period: month, usd: 0.01}, {scope: org, period: total, tokens: 100000}]")
	ask := func(user string, header ...string) Answer {
		body := `{"model":"m","safety_identifier":"` + user + `","max_tokens":400,"messages":[{"role":"user","content":"x"}]}`
		return g.Send("POST", "/v1/chat/completions", strings.NewReader(body), append([]string{"Authorization", "Bearer owner-key"}, header...)...)
	}
	for range 2 {
		if a := ask("u/1"); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	for range 2 {
		a := ask("u/1", "turnpike-mcp-disabled", "true")
		if a.Status != 429 || !strings.Contains(string(a.Body), "end_user/u%2F1/month/") || !strings.Contains(string(a.Body), "0.01 USD") {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	if a := ask("u2"); a.Status != 200 {
		t.Errorf("another end user: %d %s", a.Status, a.Body)
	}
	if a := g.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"g-free","messages":[{"role":"user","content":"x"}],"user":"u3"}`), "Authorization", "Bearer owner-key"); a.Status != 400 || !strings.Contains(string(a.Body), "model_without_price") {
		t.Errorf("a model without a price: %d %s", a.Status, a.Body)
	}
	if a := ask("u4", "turnpike-max-run-cost-usd", "0.0000001"); a.Status != 429 || !strings.Contains(string(a.Body), "max_run_cost_usd") {
		t.Errorf("a run that may cost nothing: %d %s", a.Status, a.Body)
	}
	if a := ask("u4", "turnpike-max-run-cost-usd", "-1"); a.Status != 400 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if len(up.Requests()) != 3 {
		t.Errorf("%d calls", len(up.Requests()))
	}
	var events []string
	for _, kind := range []audit.Kind{audit.KindBudgetThreshold, audit.KindBudgetExceeded} {
		var page struct{ Data []struct{ Body audit.Budget } }
		a := g.Send("GET", "/api/audit?kind="+kind.Short(), nil, "Authorization", "Bearer owner-key")
		if err := json.Unmarshal(a.Body, &page); err != nil {
			t.Fatal(err)
		}
		for _, row := range page.Data {
			events = append(events, fmt.Sprint(kind.Short(), " ", strings.Split(row.Body.Budget, "/month")[0], " ", row.Body.Percent))
		}
	}
	if got := fmt.Sprint(events); got != "[budget.threshold end_user/u%2F1 80 budget.exceeded end_user/u%2F1 100]" {
		t.Error(got)
	}
}

// A relayed answer is charged with what the provider counts, an answer that the client cuts off with what was
// reserved for it, and an error of the provider with nothing. // P03
func TestWhatARelayIsCharged(t *testing.T) {
	NoLeaks(t)
	release := make(chan struct{})
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		switch {
		case strings.Contains(string(got.Body), "fail"):
			http.Error(w, `{"error":{"message":"no"}}`, 500)
		case strings.Contains(string(got.Body), "cut"):
			w.Header().Set("Content-Type", "text/event-stream")
			for range 3 {
				_, _ = io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"}}]}\n\n")
			}
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			close(release)
		default:
			Counts(1000, 100)(w, r, got)
		}
	})
	data, reached := NewData(t), make(chan struct{})
	g := inBudget(t, data, up, "budgets: [{scope: org, period: day, usd: 10}]")
	relay := func(content, more string) Answer {
		return g.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m",`+more+`"max_tokens":1000,"messages":[{"role":"user","content":"`+content+`"}]}`),
			"Authorization", "Bearer owner-key", "turnpike-mcp-disabled", "true")
	}
	relay("x", "")
	relay("x", `"stream":true,"stream_options":{"include_usage":true},`)
	relay("fail", "")
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		defer close(reached)
		request := g.Request(ctx, "POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","stream":true,"max_tokens":1000,"messages":[{"role":"user","content":"cut"}]}`),
			"Authorization", "Bearer owner-key", "turnpike-mcp-disabled", "true")
		resp, err := g.Client.Do(request)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		if _, err := resp.Body.Read(make([]byte, 10)); err != nil {
			t.Error(err)
		}
	}()
	Wait(t, reached, "the answer")
	leave()
	Wait(t, release, "the provider is left")
	if err := g.Stop(); err != nil { // which stores what was spent
		t.Fatal(err)
	}
	store, err := database.OpenReader(t.Context(), filepath.Join(data, app.DatabaseFile))
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	all, err := store.UsedAll(t.Context(), "o", "org/day/", "", 2)
	if err != nil || len(all) != 1 {
		t.Fatalf("%+v %v", all, err)
	}
	used := all[0]
	const counted = 2 * (1000*1_000 + 100*10_000)
	if cut := used.Spent.NanoUSD - counted; cut < 10_000_000 || cut > 10_100_000 || used.Reserved.NanoUSD != 0 {
		t.Errorf("%+v: the answer that was cut off is charged with %d", used, cut)
	}
}

// A key can have budgets of its own, and gives none of its keys more. // P46 P03
func TestAKeyWithABudget(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Counts(100, 400)) // 0.0041 USD
	g := Manage(inBudget(t, NewData(t), up, "budgets: [{scope: key, period: month, usd: 5}]"))
	made := g.Do("POST", "/api/keys", "owner-key", `{"name":"team","role":"admin","budgets":[{"period":"day","usd":0.01}]}`, 201)
	key := made["key"].(string)
	if got := fmt.Sprint(made["budgets"]); got != "[map[period:day usd:0.01]]" {
		t.Errorf("budgets %s", got)
	}
	ask := func() Answer {
		return g.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","max_tokens":400,"messages":[{"role":"user","content":"x"}]}`), "Authorization", "Bearer "+key)
	}
	for range 2 {
		if a := ask(); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	if a := ask(); a.Status != 429 || !strings.Contains(string(a.Body), made["id"].(string)+"/day/") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	for body, status := range map[string]int{
		`{"name":"x"}`: 403, `{"name":"x","budgets":[{"period":"month","usd":0.01}]}`: 403, `{"name":"x","budgets":[{"period":"day","usd":0.02}]}`: 403,
		`{"name":"y","budgets":[{"period":"day","usd":0.01,"tokens":5}]}`: 201, `{"name":"z","budgets":[{"period":"day"}]}`: 400,
	} {
		if a := g.Send("POST", "/api/keys", strings.NewReader(body), "Authorization", "Bearer "+key); a.Status != status {
			t.Errorf("%s: %d %s, want %d", body, a.Status, a.Body, status)
		}
	}
	id := made["id"].(string)
	if changed := g.Do("PATCH", "/api/keys/"+id, "owner-key", `{"budgets":[{"period":"day","usd":1}]}`, 200); fmt.Sprint(changed["budgets"]) != "[map[period:day usd:1]]" {
		t.Errorf("%v", changed)
	}
	if a := ask(); a.Status != 200 {
		t.Errorf("with a larger budget: %d %s", a.Status, a.Body)
	}
	if renamed := g.Do("PATCH", "/api/keys/"+id, "owner-key", `{"name":"other"}`, 200); fmt.Sprint(renamed["budgets"]) != "[map[period:day usd:1]]" {
		t.Errorf("%v", renamed)
	}
	if none := g.Do("PATCH", "/api/keys/"+id, "owner-key", `{"budgets":null}`, 200); fmt.Sprint(none["budgets"]) != "[]" {
		t.Errorf("%v", none)
	}
}

// The sums of the API are those of the requests, by whom and for whom they were made. // P57
func TestUsageOverTheAPI(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Counts(30, 120))
	g := inBudget(t, NewData(t), up, "budgets: [{scope: org, period: total, usd: 1}]")
	for user, relay := range map[string]string{"a": "false", "b": "false", "c": "true"} {
		for range 2 {
			a := g.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","user":"`+user+`","max_tokens":200,"messages":[{"role":"user","content":"x"}]}`),
				"Authorization", "Bearer member-key", "turnpike-mcp-disabled", relay)
			if a.Status != 200 {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
		}
	}
	refused := g.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","max_tokens":200000,"messages":[{"role":"user","content":"x"}]}`),
		"Authorization", "Bearer member-key", "turnpike-mcp-disabled", "true")
	if refused.Status != 429 {
		t.Errorf("%d %s", refused.Status, refused.Body)
	}
	of := func(query string) string {
		return string(g.Send("GET", "/api/usage"+query, nil, "Authorization", "Bearer owner-key").Body)
	}
	got := of("")
	for end := time.Now().Add(Patience); !strings.Contains(got, `"requests":6`) && time.Now().Before(end); { // a relay is recorded after its answer
		got = of("")
	}
	if !strings.HasPrefix(got, `{"data":[{"requests":6,"input_tokens":180,`) {
		t.Error(got)
	}
	const sum = `"requests":2,"input_tokens":60,"cached_tokens":0,"output_tokens":240,"tool_calls":0,"gpu_ms":0,"cost_usd":0.00246,"tool_cost_usd":0,`
	if got := of("?by=end_user,key"); !strings.Contains(got, `"end_user":"b",`+sum) || !strings.Contains(got, `"end_user":"c",`+sum) || strings.Count(got, "requests") != 3 {
		t.Error(got)
	}
	rows := ""
	for end := time.Now().Add(Patience); !strings.Contains(rows, `"attempts":0,"status":"failed"`); {
		if time.Now().After(end) {
			t.Fatalf("the request that was refused has no row that says so: %s", rows)
		}
		rows = string(g.Send("GET", "/api/audit?kind=request", nil, "Authorization", "Bearer owner-key").Body)
	}
	if got := of("?from=2100-01-01T00:00:00Z"); !strings.HasPrefix(got, `{"data":[],`) {
		t.Error(got)
	}
	for _, wrong := range []string{"?by=team", "?of=key", "?from=today", "?by=key&by=day"} {
		if got := of(wrong); !strings.Contains(got, `"error"`) {
			t.Errorf("%s: %s", wrong, got)
		}
	}
}

// A run of three rounds has three model-call rows, and none for the request itself. The sums of the key have
// its tool calls, and the time that the provider bills. // L04 L05
func TestUsageOfARunIsThatOfItsRounds(t *testing.T) {
	asked, answered := Asks(Use("echo", `{"n":1}`), Use("echo", `{"n":2}`)), Says("done")
	asked.GpuMS, answered.GpuMS = 250, 500
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	g := MustRun(t, Site{Upstream: NewUpstream(t, Script(asked, asked, answered)).URL, Servers: []string{Server("tools", tools.URL)}}.Yaml())
	g.Post(Question, "Authorization", "Bearer member-key")
	want := `{"data":[{"key_id":"c","requests":3,"input_tokens":30,"cached_tokens":0,"output_tokens":15,"tool_calls":4,"gpu_ms":1000,"cost_usd":0,"tool_cost_usd":0,` +
		`"estimated_input_tokens":0,"estimated_output_tokens":0,"estimated_cost_usd":0}],"estimated_since":null}` + "\n"
	if got := string(g.Send("GET", "/api/usage?by=key", nil).Body); got != want {
		t.Errorf("the usage is %s, want %s", got, want)
	}
}
