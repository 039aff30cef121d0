package files_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

const pngImage = "\x89PNG\r\n\x1a\nMILL"

// gallery is an org with web_scrape, a web site with images, and a model with eyes.
type gallery struct {
	Documented
	up      *Upstream
	site    *Endpoint
	scrapes atomic.Int32                                                       // of Firecrawl
	asks    atomic.Pointer[Call]                                               // of the model m
	sees    atomic.Pointer[func(http.ResponseWriter, *http.Request, Received)] // of the model g-eye
	again   func() *Gateway                                                    // stops the gateway and starts it with the same data
}

// newGallery starts the gateway. The models m and g-eye cost 1 USD per million tokens of input and 10 of output; dark, a model
// that the provider serves too, has no price.
func newGallery(t *testing.T, provider, runtime string) *gallery {
	t.Helper()
	g := &gallery{}
	g.site = NewEndpoint(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v2/scrape":
			g.scrapes.Add(1)
		case r.URL.Path == "/page":
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<p>"+strings.Repeat("The mill stands by the river. ", 20)+"</p>"+
				`<img src="/a.png"><img src="/b.png"><img src="/c.png"><img src="/d.png"><img src="/e.png"><img src="/f.png"><img src="/g.png">`)
		default:
			w.Header().Set("Content-Type", "image/png")
			_, _ = io.WriteString(w, pngImage)
		}
	})
	g.asks.Store(&Call{Name: "web_scrape", Arguments: fmt.Sprintf(`{"url":%q}`, g.site.URL+"/a.png")})
	g.see(func(w http.ResponseWriter, _ *http.Request, _ Received) { Says("a red mill").Reading(1000).Write(w) })
	g.up = NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		switch {
		case strings.Contains(string(got.Body), `"model":"m"`) && len(got.Results(t)) > 0:
			Says("done").Write(w)
		case strings.Contains(string(got.Body), `"model":"m"`):
			Asks(*g.asks.Load()).Write(w)
		default:
			(*g.sees.Load())(w, r, got)
		}
	})
	rates := filepath.Join(t.TempDir(), "rates.yaml")
	if err := os.WriteFile(rates, []byte("- {model: m, provider: up, from: 2020-01-01, input: 1, output: 10}\n- {model: g-eye, provider: up, from: 2020-01-01, input: 1, output: 10}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	scrape := "provider: " + provider
	if provider == "firecrawl" {
		scrape += fmt.Sprintf(", url: %q", g.site.URL)
	}
	runtime = fmt.Sprintf("{builtin_tools: [{name: web_scrape}], web: {scrape: {%s}}%s}", scrape, runtime)
	data, yaml := NewData(t), "rates: "+rates+"\n"+Site{Upstream: g.up.URL}.WithBuiltins(runtime)
	g.Documented = Manage(MustRunIn(t, data, yaml, Environment()))
	g.again = func() *Gateway {
		if err := g.Stop(); err != nil {
			t.Fatal(err)
		}
		return MustRunIn(t, data, yaml, Environment())
	}
	g.AsOwner("PUT", "/api/settings/VISION_MODEL", `{"value":"g-eye"}`, 200)
	return g
}

func (g *gallery) see(f func(http.ResponseWriter, *http.Request, Received)) { g.sees.Store(&f) }

// told is what the model of the latest run got of web_scrape.
func (g *gallery) told(t *testing.T) string {
	t.Helper()
	all := g.up.Requests()
	results := all[len(all)-1].Results(t)
	if len(results) != 1 {
		t.Fatalf("the model was told %q", results)
	}
	return results[0]
}

// looks returns the requests to the model with eyes.
func (g *gallery) looks() (all []Received) {
	for _, r := range g.up.Requests() {
		if !strings.Contains(string(r.Body), `"model":"m"`) {
			all = append(all, r)
		}
	}
	return all
}

func (g *gallery) ask(key string) Answer {
	return g.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","user":"ada","max_tokens":100,"messages":[{"role":"user","content":"x"}]}`), "Authorization", "Bearer "+key)
}

// The URL of an image is one call of the vision model and none of the scraper. The call has no tools, counts in the budgets of the
// org, of the key and of the end user, and has an audit row within the run. // E10
func TestAnImageGoesToTheVisionModel(t *testing.T) {
	for name, runtime := range map[string]string{"light runs": "", "durable runs": ", durable: always"} {
		t.Run(name, func(t *testing.T) {
			NoLeaks(t)
			g := newGallery(t, "firecrawl", runtime+", budgets: [{scope: org, period: day, usd: 1}, {scope: key, period: day, usd: 1}, {scope: end_user, period: day, usd: 1}]")
			a := g.ask("member-key")
			if a.Status != 200 || !strings.Contains(string(a.Body), "done") {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			looks := g.looks()
			if told := g.told(t); len(looks) != 1 || g.scrapes.Load() != 0 || !strings.HasSuffix(told, "\n\na red mill") {
				t.Fatalf("%d vision calls, %d scrapes, the model was told %q", len(looks), g.scrapes.Load(), told)
			}
			body := string(looks[0].Body)
			if !strings.Contains(body, `"data:image/png;base64,`+base64.StdEncoding.EncodeToString([]byte(pngImage))+`"`) || strings.Contains(body, `"tools"`) || strings.Contains(body, "web_scrape") {
				t.Errorf("the vision model got %s", body)
			}
			again := Manage(g.again())                       // what is recorded later is recorded
			const both = 2*(10+5*10)*1e-6 + (1000+5*10)*1e-6 // two model calls of the run, and the one of the tool
			budgets := BudgetsOf(t, again.Gateway)
			if len(budgets) != 3 {
				t.Errorf("the budgets are %v", budgets)
			}
			for id, b := range budgets {
				if spent := fmt.Sprint(b["spent_usd"]); !near(spent, both, 1e-9) || b["reserved_usd"].(float64) > 0 {
					t.Errorf("budget %s: %v, want %v", id, b, both)
				}
			}
			var own []any
			for _, row := range Elements(again.AsOwner("GET", "/api/audit?run_id="+a.Header.Get("Turnpike-Run-Id"), "", 200)["data"]) {
				if text, _ := json.Marshal(row); strings.Contains(string(text), `"via":"web_scrape"`) {
					own = append(own, string(text))
				}
			}
			if text := fmt.Sprint(own...); len(own) != 1 || !strings.Contains(text, `"surface":"relay"`) || !strings.Contains(text, `"model":"g-eye"`) || !strings.Contains(text, `"cost_nano_usd":1050000`) ||
				!strings.Contains(text, `"end_user":"ada"`) || !strings.Contains(text, `"status":"ok"`) {
				t.Errorf("the audit rows of the vision call: %v", own)
			}
		})
	}
}

// include_images describes at most five images of a page, with one call each. // E10
func TestTheImagesOfAPageAreDescribed(t *testing.T) {
	NoLeaks(t)
	g := newGallery(t, "own", "")
	g.asks.Store(&Call{Name: "web_scrape", Arguments: fmt.Sprintf(`{"url":%q,"include_images":true}`, g.site.URL+"/page")})
	if a := g.ask("member-key"); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if told := g.told(t); len(g.looks()) != 5 || strings.Count(told, "a red mill") != 5 || !strings.Contains(told, "2 more images were not described") || !strings.Contains(told, "/e.png: a red mill") ||
		!strings.Contains(told, "The mill stands") {
		t.Errorf("%d vision calls, the model was told %q", len(g.looks()), told)
	}
	if first := g.up.Requests()[0].Decode(t); !strings.Contains(string(first.Tools), "include_images") {
		t.Errorf("the model was offered %s", first.Tools)
	}
	// An error says so and what to set, and the page is not lost if it is about one image.
	g.see(Refuses(400))
	g.ask("member-key")
	if told := g.told(t); strings.Count(told, "did not answer") != 5 || !strings.Contains(told, "The mill stands") {
		t.Errorf("the model was told %q", told)
	}
	g.AsOwner("PUT", "/api/settings/VISION_MODEL", `{"value":"nowhere"}`, 200)
	g.ask("member-key")
	if told := g.told(t); !strings.Contains(told, `"setting":"VISION_MODEL"`) || strings.Contains(told, "The mill stands") {
		t.Errorf("the model was told %q", told)
	}
}

// Without a model that can be asked, the model reads a JSON error, and the run goes on. Nothing is sent to the provider.
// E10
func TestImagesThatAreNotDescribed(t *testing.T) {
	for name, c := range map[string]struct{ runtime, model, want, setting string }{
		"the default, which is not served": {"", "", `the vision model \"gpt-4.1-mini\" is not available`, "VISION_MODEL"},
		"a model that is not served":       {"", "nowhere", `the vision model \"nowhere\" is not available`, "VISION_MODEL"},
		"a model without a price":          {", budgets: [{scope: key, period: day, usd: 1}]", "g-dark", "has no price", "VISION_MODEL"},
		"a budget without room":            {", budgets: [{scope: key, period: day, usd: 0.006}]", "g-eye", "budget", ""},
		"a budget of an end user":          {", budgets: [{scope: end_user, period: day, usd: 0.006}]", "g-eye", "budget", ""},
	} {
		t.Run(name, func(t *testing.T) {
			NoLeaks(t)
			g := newGallery(t, "firecrawl", c.runtime)
			g.AsOwner("PUT", "/api/settings/VISION_MODEL", fmt.Sprintf(`{"value":%q}`, c.model), 200)
			a := g.ask("member-key")
			if a.Status != 200 || !strings.Contains(string(a.Body), "done") {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
			var told struct{ Error, Setting string }
			_, text, _ := strings.Cut(g.told(t), "{")
			if err := json.Unmarshal([]byte("{"+text), &told); err != nil || !strings.Contains(g.told(t), c.want) || told.Setting != c.setting || told.Error == "" {
				t.Errorf("the model was told %q", g.told(t))
			}
			if n := len(g.looks()); n != 0 {
				t.Errorf("%d vision calls", n)
			}
		})
	}
}

// A key that may use only some models does not reach others by a tool. // E10
func TestTheVisionModelOfAKeyWithFewModels(t *testing.T) {
	NoLeaks(t)
	g := newGallery(t, "firecrawl", "")
	for models, want := range map[string]int{`["m"]`: 0, `["m","g-eye"]`: 1} {
		key := g.Do("POST", "/api/keys", "owner-key", `{"name":"k`+fmt.Sprint(want)+`","role":"member","models":`+models+`}`, 201)["key"].(string)
		before := len(g.looks())
		if a := g.ask(key); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		if n := len(g.looks()) - before; n != want || strings.Contains(g.told(t), "VISION_MODEL") != (want == 0) {
			t.Errorf("models %s: %d vision calls, the model was told %q", models, n, g.told(t))
		}
	}
}

// The vision model fails over like any other model. // E10
func TestTheVisionModelFailsOver(t *testing.T) {
	NoLeaks(t)
	png := NewEndpoint(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, pngImage) })
	two := NewUpstream(t, SaysChat("a red mill"))
	one := NewUpstream(t, func(w http.ResponseWriter, r *http.Request, got Received) {
		if strings.Contains(string(got.Body), `"model":"a"`) {
			Refuses(401)(w, r, got)
			return
		}
		Script(Asks(Use("web_scrape", fmt.Sprintf(`{"url":%q}`, png.URL))), Says("done"), Says("done"))(w, r, got)
	})
	yaml := strings.Replace(RoutesYAML(one.URL, two.URL, ""), "runtime: {}", "runtime: {builtin_tools: [{name: web_scrape}]}", 1)
	g := Manage(MustRun(t, yaml))
	g.AsOwner("PUT", "/api/settings/VISION_MODEL", `{"value":"fast"}`, 200)
	if a := g.Post(Question); a.Status != 200 || len(two.Requests()) != 1 {
		t.Fatalf("%d %s, %d calls of the second target", a.Status, a.Body, len(two.Requests()))
	}
	all := one.Requests()
	if told := all[len(all)-1].Results(t); len(all) != 3 || len(told) != 1 || !strings.Contains(told[0], "a red mill") {
		t.Errorf("%d calls of the first target; the model was told %q", len(all), told)
	}
}

// A run that is cancelled ends its vision call, and nothing stays reserved. // E10
func TestACancelledRunEndsItsVisionCall(t *testing.T) {
	NoLeaks(t)
	g := newGallery(t, "firecrawl", ", budgets: [{scope: key, period: day, usd: 1}]")
	asked, ended := make(chan struct{}), make(chan struct{})
	g.see(func(_ http.ResponseWriter, r *http.Request, _ Received) {
		close(asked)
		<-r.Context().Done()
		close(ended)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	left := make(chan error, 1)
	go func() {
		resp, err := g.Client.Do(g.Request(ctx, "POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","stream":true,"max_tokens":100,"messages":[{"role":"user","content":"x"}]}`)))
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		left <- err
	}()
	Wait(t, asked, "the vision call")
	cancel()
	Wait(t, ended, "its end")
	if err := Wait(t, left, "the client"); err == nil {
		t.Error("the client got an answer")
	}
	if n := len(g.looks()); n != 1 {
		t.Errorf("%d vision calls", n)
	}
	for id, b := range BudgetsOf(t, g.again()) {
		if b["reserved_usd"].(float64) > 0 || b["spent_usd"].(float64) <= 0 {
			t.Errorf("budget %s: %v", id, b)
		}
	}
}
