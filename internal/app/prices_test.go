package app_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// What a run costs is in the header of a JSON answer, in the extension cost, in the detail of the
// run, in the audit log and in a metric. The price is the operator's.
func TestWhatARunCosts(t *testing.T) { // P41
	noLeaks(t)
	up := turnpiketest.NewUpstream(turnpiketest.NewScript(t, strings.Repeat("call c1 echo {}\nusage 12 5\n\ntext Done.\nusage 12 5\n\n", 8)), turnpiketest.UpstreamOptions{})
	t.Cleanup(up.Close)
	tools := newMCP(t, map[string]handler{"echo": echo})
	file := filepath.Join(t.TempDir(), "rates.yaml")
	if err := os.WriteFile(file, []byte("- {model: m, provider: up, from: 2020-01-01, input: 2.5, output: 10}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := site{upstream: up.URL, servers: []string{server("tools", tools.URL)}}.yaml()
	priced := MustRun(t, "rates: "+file+"\ntelemetry: {metrics_listen: \"127.0.0.1:0\"}\n"+config)
	const cost = "0.00016" // two rounds of 12 tokens of input and 5 of output
	for path, body := range map[string]string{"/v1/chat/completions": `"messages":[{"role":"user","content":"x"}]`, "/v1/responses": `"input":"x"`} {
		a := priced.send("POST", path, strings.NewReader(`{"model":"m",`+body+`}`), "Authorization", "Bearer owner-key", "turnpike-extensions", "cost")
		if a.status != 200 || a.header.Get("Turnpike-Cost-Usd") != cost || !strings.Contains(string(a.body), `"cost":{"usd":`+cost+`}`) {
			t.Errorf("%s: %d %v %s", path, a.status, a.header, a.body)
		}
		detail := priced.send("GET", "/v1/runs/"+a.header.Get("Turnpike-Run-Id"), nil, "Authorization", "Bearer owner-key")
		if !strings.Contains(string(detail.body), `"cost_nano_usd":160000`) {
			t.Errorf("%s: %s", path, detail.body)
		}
		streamed := priced.send("POST", path, strings.NewReader(`{"model":"m","stream":true,`+body+`}`), "Authorization", "Bearer owner-key", "turnpike-extensions", "cost")
		if streamed.status != 200 || strings.Count(string(streamed.body), `"cost":{"usd":`+cost+`}`) != 1 {
			t.Errorf("%s: %d %s", path, streamed.status, streamed.body)
		}
	}
	if got := scrape(t, priced)["turnpike_cost_usd_total{model=m,org=o,provider=up}"]; math.Abs(got-4*0.00016) > 1e-12 {
		t.Errorf("the metric says %g", got)
	}
}

// A model without a price is not reported as free.
func TestAModelWithoutAPriceHasNoCost(t *testing.T) { // P41
	noLeaks(t)
	up := turnpiketest.NewUpstream(turnpiketest.NewScript(t, "text Done.\nusage 12 5\n\ntext Done.\nusage 12 5"), turnpiketest.UpstreamOptions{})
	t.Cleanup(up.Close)
	tools := newMCP(t, map[string]handler{"echo": echo})
	g := MustRun(t, site{upstream: up.URL, servers: []string{server("tools", tools.URL)}}.yaml())
	for _, extensions := range []string{"cost", "session"} {
		a := g.send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}]}`), "Authorization", "Bearer owner-key", "turnpike-extensions", extensions)
		_, header := a.header["Turnpike-Cost-Usd"]
		if a.status != 200 || header || strings.Contains(string(a.body), `"cost":null`) != (extensions == "cost") {
			t.Errorf("%s: %d %v %s", extensions, a.status, a.header, a.body)
		}
	}
}

// A model of the operator's own costs the time of its calls.
func TestTheTimeOfAModelCallCosts(t *testing.T) { // P41
	noLeaks(t)
	up := turnpiketest.NewUpstream(turnpiketest.NewScript(t, "text Done.\nusage 12 5"), turnpiketest.UpstreamOptions{})
	t.Cleanup(up.Close)
	tools := newMCP(t, map[string]handler{"echo": echo})
	file := filepath.Join(t.TempDir(), "rates.yaml")
	if err := os.WriteFile(file, []byte("- {model: m, from: 2020-01-01, gpu_second: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := MustRun(t, "rates: "+file+"\n"+site{upstream: up.URL, servers: []string{server("tools", tools.URL)}}.yaml())
	a := g.send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}]}`), "Authorization", "Bearer owner-key")
	if cost, err := money.ParseUSD(a.header.Get("Turnpike-Cost-Usd")); a.status != 200 || err != nil || cost < money.USD/1000 || cost%(money.USD/1000) != 0 {
		t.Errorf("%d %v: want whole milliseconds of 0.001 USD each", a.status, a.header)
	}
}
