package chat_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// What a run costs is in the header of a JSON answer, in the extension cost, in the detail of the
// run, in the audit log and in a metric. The price is the operator's.
func TestWhatARunCosts(t *testing.T) { // P41
	NoLeaks(t)
	up := upstreamtest.New(turnpiketest.NewScript(t, strings.Repeat("call c1 echo {}\nusage 12 5\n\ntext Done.\nusage 12 5\n\n", 8)), upstreamtest.Options{})
	t.Cleanup(up.Close)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	file := filepath.Join(t.TempDir(), "rates.yaml")
	if err := os.WriteFile(file, []byte("- {model: m, provider: up, from: 2020-01-01, input: 2.5, output: 10}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml()
	priced := MustRun(t, "rates: "+file+"\ntelemetry: {metrics_listen: \"127.0.0.1:0\"}\n"+config)
	const cost = "0.00016" // two rounds of 12 tokens of input and 5 of output
	for path, body := range map[string]string{"/v1/chat/completions": `"messages":[{"role":"user","content":"x"}]`, "/v1/responses": `"input":"x"`} {
		a := priced.Send("POST", path, strings.NewReader(`{"model":"m",`+body+`}`), "Authorization", "Bearer owner-key", "turnpike-extensions", "cost")
		if a.Status != 200 || a.Header.Get("Turnpike-Cost-Usd") != cost || !strings.Contains(string(a.Body), `"cost":{"usd":`+cost+`}`) {
			t.Errorf("%s: %d %v %s", path, a.Status, a.Header, a.Body)
		}
		detail := priced.Send("GET", "/v1/runs/"+a.Header.Get("Turnpike-Run-Id"), nil, "Authorization", "Bearer owner-key")
		if !strings.Contains(string(detail.Body), `"cost_nano_usd":160000`) {
			t.Errorf("%s: %s", path, detail.Body)
		}
		streamed := priced.Send("POST", path, strings.NewReader(`{"model":"m","stream":true,`+body+`}`), "Authorization", "Bearer owner-key", "turnpike-extensions", "cost")
		if streamed.Status != 200 || strings.Count(string(streamed.Body), `"cost":{"usd":`+cost+`}`) != 1 {
			t.Errorf("%s: %d %s", path, streamed.Status, streamed.Body)
		}
	}
	if got := Scrape(t, priced)["turnpike_cost_usd_total{model=m,org=o,provider=up}"]; math.Abs(got-4*0.00016) > 1e-12 {
		t.Errorf("the metric says %g", got)
	}
}

// A model without a price is not reported as free.
func TestAModelWithoutAPriceHasNoCost(t *testing.T) { // P41
	NoLeaks(t)
	up := upstreamtest.New(turnpiketest.NewScript(t, "text Done.\nusage 12 5\n\ntext Done.\nusage 12 5"), upstreamtest.Options{})
	t.Cleanup(up.Close)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	g := MustRun(t, Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml())
	for _, extensions := range []string{"cost", "session"} {
		a := g.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}]}`), "Authorization", "Bearer owner-key", "turnpike-extensions", extensions)
		_, header := a.Header["Turnpike-Cost-Usd"]
		if a.Status != 200 || header || strings.Contains(string(a.Body), `"cost":null`) != (extensions == "cost") {
			t.Errorf("%s: %d %v %s", extensions, a.Status, a.Header, a.Body)
		}
	}
}

// A model of the operator's own costs the time of its calls.
func TestTheTimeOfAModelCallCosts(t *testing.T) { // P41
	NoLeaks(t)
	up := upstreamtest.New(turnpiketest.NewScript(t, "text Done.\nusage 12 5"), upstreamtest.Options{})
	t.Cleanup(up.Close)
	tools := NewMCP(t, map[string]Handler{"echo": Echo})
	file := filepath.Join(t.TempDir(), "rates.yaml")
	if err := os.WriteFile(file, []byte("- {model: m, from: 2020-01-01, gpu_second: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g := MustRun(t, "rates: "+file+"\n"+Site{Upstream: up.URL, Servers: []string{Server("tools", tools.URL)}}.Yaml())
	a := g.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}]}`), "Authorization", "Bearer owner-key")
	if cost, err := money.ParseUSD(a.Header.Get("Turnpike-Cost-Usd")); a.Status != 200 || err != nil || cost < money.USD/1000 || cost%(money.USD/1000) != 0 {
		t.Errorf("%d %v: want whole milliseconds of 0.001 USD each", a.Status, a.Header)
	}
}
