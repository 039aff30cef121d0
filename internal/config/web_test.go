package config

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// The keys of the tools for the web, as the file and the management API read and write them. // E04 E08 E10
func TestWebSettings(t *testing.T) {
	const written = `{"web":{"search":{"provider":"searxng","url":"https://search.example.com","api_key":"secret:search_key"},` +
		`"scrape":{"provider":"firecrawl","url":"https://crawl.example.com"},"http_hosts":["api.example.com","*.example.org"],"http_methods":["GET"]}}`
	rt, err := Part{Name: "a test", Data: []byte(written)}.Runtime(50)
	if err != nil {
		t.Fatal(err)
	}
	want := org.Web{
		Search:    org.WebSearch{Provider: "searxng", URL: "https://search.example.com", APIKey: "secret:search_key"},
		Scrape:    org.WebScrape{Provider: "firecrawl", URL: "https://crawl.example.com"},
		HTTPHosts: []string{"api.example.com", "*.example.org"}, HTTPMethods: []string{"GET"},
	}
	if diff := cmp.Diff(want, rt.Web); diff != "" {
		t.Error(diff)
	}
	shown, err := json.Marshal(RuntimeSettings(rt))
	if err != nil || !strings.Contains(string(shown), strings.Trim(written, "{}")) {
		t.Errorf("%v: %s", err, shown)
	}
	again, err := Part{Name: "a test", Data: shown, Patched: true}.Runtime(50)
	if err != nil || !cmp.Equal(rt.Web, again.Web) {
		t.Errorf("%v: %s", err, cmp.Diff(rt.Web, again.Web))
	}
	// Settings that were stored before the key was added.
	shown, _ = json.Marshal(RuntimeSettings(org.Runtime{}))
	if !strings.Contains(string(shown), `"web":{"search":{"provider":"exa"},"scrape":{"provider":"own"},"http_hosts":["*"],"http_methods":["GET","HEAD","POST","PUT","PATCH","DELETE"]}`) {
		t.Errorf("%s", shown)
	}
}

func TestWebSettingsThatCannotWork(t *testing.T) {
	for text, want := range map[string]string{
		`{"web":{"search":{"provider":"searxng"}}}`:                                       "web.search.url: is required for the provider searxng",
		`{"web":{"search":{"provider":"custom"}}}`:                                        "web.search.url: is required for the provider custom",
		`{"web":{"search":{"provider":"duckduckgo","api_key":"secret:k"}}}`:               "duckduckgo takes no key",
		`{"web":{"search":{"provider":"bing"}}}`:                                          "want exa, searxng, duckduckgo or custom",
		`{"web":{"search":{"api_key":"abc"}}}`:                                            "must refer to the vault",
		`{"web":{"search":{"url":"ftp://x"}}}`:                                            "web.search.url",
		`{"web":{"scrape":{"url":"https://x.example.com"}}}`:                              "only for the provider firecrawl",
		`{"web":{"http_hosts":[]}}`:                                                       "could reach no host",
		`{"web":{"http_hosts":["https://x.example.com"]}}`:                                "not a host name",
		`{"web":{"http_hosts":["a.*.example.com"]}}`:                                      "must be a host name",
		`{"web":{"http_hosts":[` + strings.Repeat(`"x.example.com",`, 100) + `"y.com"]}}`: "at most 100",
		`{"web":{"http_methods":[]}}`:                                                     "could send nothing",
		`{"web":{"http_methods":["TRACE"]}}`:                                              "TRACE",
		`{"web":{"browse":true}}`:                                                         "browse",
	} {
		if _, err := (Part{Name: "a test", Data: []byte(text)}).Runtime(50); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

var defaultWeb = org.Web{
	Search: org.WebSearch{Provider: "exa"}, Scrape: org.WebScrape{Provider: "own"}, HTTPHosts: []string{"*"}, HTTPMethods: org.WebMethods(),
}
