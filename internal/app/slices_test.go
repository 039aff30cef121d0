package app_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// With budgets and routes, relayed requests write to the store for their budgets less than once in 100
// requests, while more than 5 percent of each budget is left. A relay to one target is passed on unchanged, one to
// two is translated, and embeddings have a cost of input only. // P03
func TestRelaysInBudgetsRarelyWrite(t *testing.T) {
	NoLeaks(t)
	var big atomic.Bool
	up := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		switch {
		case big.Load(): // 94 percent of the smallest budget
			Counts(94_000_000, 0)(w, r, got)
		case strings.HasSuffix(r.URL.Path, "/embeddings"):
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, Embedding)
		default:
			Counts(20, 30)(w, r, got)
		}
	})
	card := filepath.Join(t.TempDir(), "rates.yaml")
	if err := os.WriteFile(card, []byte("- {model: '*', from: 2020-01-01, input: 1, output: 10}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const budgets = "budgets: [{scope: org, period: month, usd: 200}, {scope: key, period: day, usd: 150}, {scope: end_user, period: total, usd: 100, tokens: 1000000000}]"
	text := strings.Replace(Site{Upstream: up.URL, Feature: "none", Runtime: budgets + ", concurrency: 1000"}.Yaml(), "outbound:",
		"routes:\n  - {model: one, targets: [{provider: up, model: m}]}\n  - {model: two, targets: [{provider: up, model: m}, {provider: up, model: g-2}]}\noutbound:", 1)
	g := MustRun(t, "rates: "+card+"\ntelemetry: {metrics_listen: \"127.0.0.1:0\"}\n"+text)
	ask := func(path, model string) {
		body := fmt.Sprintf(`{"model":%q,"user":"u","max_tokens":100,"input":"x","messages":[{"role":"user","content":"x"}]}`, model)
		if path == "/v1/embeddings" {
			body = fmt.Sprintf(`{"model":%q,"user":"u","input":"x"}`, model)
		}
		if a := g.Send("POST", path, strings.NewReader(body)); a.Status != 200 {
			t.Errorf("%s %s: %d %.300s", path, model, a.Status, a.Body)
		}
	}
	const workers, each = 4, 170
	measure := func(when string) {
		t.Helper()
		before := Scrape(t, g)["turnpike_budget_writes_total{}"]
		var all sync.WaitGroup
		for range workers {
			all.Go(func() {
				for range each {
					ask("/v1/chat/completions", "one")
					ask("/v1/chat/completions", "two")
					ask("/v1/embeddings", "one")
				}
			})
		}
		all.Wait()
		const requests = workers * each * 3
		writes := Scrape(t, g)["turnpike_budget_writes_total{}"] - before
		t.Logf("%s: %g writes for %d requests", when, writes, requests)
		if writes < 1 || writes > requests/100 {
			t.Errorf("%s: %g writes for %d requests, want 1 to %d", when, writes, requests, requests/100)
		}
	}
	measure("with all of the budgets")
	big.Store(true)
	ask("/v1/chat/completions", "one") // 94 of 100 USD
	big.Store(false)
	measure("with less than 6 percent of one")
	for id, b := range BudgetsOf(t, g) {
		t.Log(id, b["spent_usd"], b["reserved_usd"], b["limit_usd"])
	}
	if n := len(up.Requests()); n != 2*workers*each*3+1 {
		t.Errorf("the provider got %d requests", n)
	}
}
