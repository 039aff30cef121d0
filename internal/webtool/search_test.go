package webtool

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// fakeExa is POST /search of Exa as its OpenAPI document describes it: it refuses what that does not have.
type fakeExa struct {
	t       *testing.T
	body    map[string]any
	status  int
	answer  string
	results []map[string]any
}

func (f *fakeExa) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	refuse := func(status int, why string) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": why, "requestId": "1"})
	}
	if r.Method != http.MethodPost || r.URL.Path != "/search" || r.Header.Get("Content-Type") != "application/json" {
		refuse(404, "no such route")
		return
	}
	if r.Header.Get("x-api-key") != "exa-key" {
		refuse(401, "Invalid API key")
		return
	}
	f.body = nil
	if err := json.NewDecoder(r.Body).Decode(&f.body); err != nil {
		refuse(400, err.Error())
		return
	}
	if why := f.check(); why != "" {
		f.t.Errorf("Exa refuses the request: %s", why)
		refuse(400, why)
		return
	}
	if f.status != 0 {
		refuse(f.status, f.answer)
		return
	}
	n := int(f.body["numResults"].(float64))
	_ = json.NewEncoder(w).Encode(map[string]any{"requestId": "1", "resolvedSearchType": "neural", "results": f.results[:min(n, len(f.results))], "costDollars": map[string]any{"total": 0.005}})
}

// check returns what the document does not allow.
func (f *fakeExa) check() string {
	text := func(v any) bool { s, ok := v.(string); return ok && s != "" }
	texts := func(most int) func(any) bool {
		return func(v any) bool {
			list, ok := v.([]any)
			return ok && len(list) <= most && !slices.ContainsFunc(list, func(one any) bool { return !text(one) })
		}
	}
	day := func(v any) bool {
		s, _ := v.(string)
		return len(s) == len("2023-01-01T00:00:00.000Z") && strings.HasSuffix(s, "Z")
	}
	of := func(words ...string) func(any) bool {
		return func(v any) bool { s, _ := v.(string); return slices.Contains(words, s) }
	}
	members := map[string]func(any) bool{
		"query": text, "type": of("keyword", "neural", "fast", "auto", "deep"), "userLocation": func(v any) bool { s, _ := v.(string); return len(s) == 2 },
		"category":   of("company", "research paper", "news", "pdf", "github", "tweet", "personal site", "linkedin profile", "financial report", "people"),
		"numResults": func(v any) bool { n, ok := v.(float64); return ok && n >= 1 && n <= 100 }, "includeDomains": texts(1200), "excludeDomains": texts(1200),
		"startCrawlDate": day, "endCrawlDate": day, "startPublishedDate": day, "endPublishedDate": day, "includeText": texts(1), "excludeText": texts(1),
		"contents": func(v any) bool {
			c, ok := v.(map[string]any)
			for name, value := range c {
				o, isObject := value.(map[string]any)
				ok = ok && isObject && slices.Contains([]string{"text", "highlights", "summary"}, name)
				for inner := range o {
					ok = ok && name == "text" && inner == "maxCharacters"
				}
			}
			return ok
		},
	}
	for name, value := range f.body {
		if valid, known := members[name]; !known || !valid(value) {
			return fmt.Sprintf("%s: %v", name, value)
		}
	}
	if f.body["query"] == nil {
		return "query is missing"
	}
	return ""
}

func exaWeb(t *testing.T) (*web, *fakeExa) {
	f := &fakeExa{t: t, results: []map[string]any{
		{"title": "A <b>page</b>", "url": "https://a.example.com/1", "publishedDate": "2026-01-02", "author": nil, "id": "1", "score": 0.5, "highlights": []string{"one", "two"}, "text": "the text", "summary": "the summary"},
		{"title": nil, "url": "https://evil.example.net/2", "highlights": []string{"three"}},
		{"title": "script", "url": "javascript:alert(1)"},
	}}
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	w := newWeb(t, nil)
	w.settings.Search.URL = s.URL
	w.secrets["secret:EXA_API_KEY"] = "exa-key"
	return w, f
}

// Every option reaches the request of Exa. // E08
func TestEveryOptionReachesExa(t *testing.T) {
	w, f := exaWeb(t)
	all := map[string]any{
		"query": "gateways", "max_results": 3, "search_context_size": "high", "content_depth": "full_text", "allowed_domains": []string{"Example.com", "*.example.org"},
		"blocked_domains": []string{"example.net"}, "mode": "neural", "category": "research paper", "start_published_date": "2026-01-01", "end_published_date": "2026-02-01",
		"start_crawl_date": "2026-01-03T10:00:00+01:00", "end_crawl_date": "2026-03-01", "include_text": "large language model", "exclude_text": "course", "country": "de",
	}
	if missing := optionsWithout(all); missing != nil {
		t.Fatalf("the test does not know %v", missing)
	}
	w.text(SearchName, all)
	want := map[string]any{
		"query": "gateways", "type": "neural", "category": "research paper", "userLocation": "DE", "numResults": 3.0,
		"includeDomains": []any{"example.com", "example.org"}, "excludeDomains": []any{"example.net"},
		"startPublishedDate": "2026-01-01T00:00:00.000Z", "endPublishedDate": "2026-02-01T23:59:59.999Z",
		"startCrawlDate": "2026-01-03T09:00:00.000Z", "endCrawlDate": "2026-03-01T23:59:59.999Z",
		"includeText": []any{"large language model"}, "excludeText": []any{"course"}, "contents": map[string]any{"text": map[string]any{"maxCharacters": 16_666.0}},
	}
	if diff := cmp.Diff(want, f.body); diff != "" {
		t.Error(diff)
	}
	for depth, contents := range map[string]any{"": map[string]any{"highlights": map[string]any{}}, "snippets": map[string]any{"highlights": map[string]any{}}, "summary": map[string]any{"summary": map[string]any{}}, "text": map[string]any{"text": map[string]any{"maxCharacters": 4000.0}}} {
		w.text(SearchName, map[string]any{"query": "q", "content_depth": depth})
		if diff := cmp.Diff(contents, f.body["contents"]); diff != "" || f.body["numResults"] != 5.0 || f.body["type"] != "auto" {
			t.Errorf("%s: %s", depth, diff)
		}
	}
	for _, mode := range []string{"auto", "neural", "keyword", "fast", "deep"} {
		if w.text(SearchName, map[string]any{"query": "q", "mode": mode}); f.body["type"] != mode {
			t.Errorf("%s: %v", mode, f.body["type"])
		}
	}
}

// optionsWithout returns the options of web_search that a call does not have.
func optionsWithout(call map[string]any) (missing []string) {
	for i, kind := 0, reflect.TypeFor[searchArguments](); i < kind.NumField(); i++ {
		if name, _, _ := strings.Cut(kind.Field(i).Tag.Get("json"), ","); call[name] == nil {
			missing = append(missing, name)
		}
	}
	return missing
}

// The schema has the options that the decoder has. // E08
func TestTheSchemaHasEveryOption(t *testing.T) {
	var schema struct{ Properties map[string]any }
	if err := json.Unmarshal(searchDefinition().InputSchema, &schema); err != nil {
		t.Fatal(err)
	}
	if missing := optionsWithout(schema.Properties); missing != nil || len(schema.Properties) != reflect.TypeFor[searchArguments]().NumField() {
		t.Errorf("missing %v of %v", missing, schema.Properties)
	}
}

// Options that are unknown or out of range are refused, and nothing is sent. // E08 E09
func TestSearchOptionsThatAreRefused(t *testing.T) {
	w, f := exaWeb(t)
	domains := make([]string, 101)
	for i := range domains {
		domains[i] = fmt.Sprintf("d%d.example.com", i)
	}
	for _, c := range []struct {
		arguments map[string]any
		want      string
	}{
		{map[string]any{}, "query must have"},
		{map[string]any{"query": strings.Repeat("x", 2001)}, "query must have"},
		{map[string]any{"max_results": 0}, "1 to 10"},
		{map[string]any{"max_results": 11}, "1 to 10"},
		{map[string]any{"max_results": "5"}, "wrong type"},
		{map[string]any{"search_context_size": "huge"}, "low, medium, high"},
		{map[string]any{"content_depth": "all"}, "snippets, summary, text, full_text"},
		{map[string]any{"mode": "magic"}, "auto, neural"},
		{map[string]any{"category": "songs"}, "company"},
		{map[string]any{"allowed_domains": domains}, "at most 100"},
		{map[string]any{"blocked_domains": domains}, "at most 100"},
		{map[string]any{"allowed_domains": []string{"https://example.com"}}, "is not a domain"},
		{map[string]any{"blocked_domains": []string{"example.com/path"}}, "is not a domain"},
		{map[string]any{"blocked_domains": []string{"com"}}, "is not a domain"},
		{map[string]any{"start_published_date": "yesterday"}, "is not a day"},
		{map[string]any{"end_crawl_date": "2026-13-01"}, "is not a day"},
		{map[string]any{"start_published_date": "2026-02-02", "end_published_date": "2026-02-01"}, "is before"},
		{map[string]any{"include_text": "one two three four five six"}, "1 to 5 words"},
		{map[string]any{"exclude_text": "  "}, "1 to 5 words"},
		{map[string]any{"country": "Germany"}, "two letters"},
		{map[string]any{"category": "company", "start_published_date": "2026-02-02"}, "cannot be combined"},
		{map[string]any{"category": "people", "blocked_domains": []string{"example.com"}}, "cannot be combined"},
		{map[string]any{"live": true}, "is not known"},
	} {
		if _, given := c.arguments["query"]; !given && c.want != "query must have" {
			c.arguments["query"] = "q"
		}
		if text, failed := w.text(SearchName, c.arguments); !failed || !strings.Contains(text, c.want) {
			t.Errorf("%.80v: %.200s, want %q", c.arguments, text, c.want)
		}
	}
	if f.body != nil {
		t.Error("a refused search was sent")
	}
	if _, failed := w.text(SearchName, map[string]any{"query": "q", "allowed_domains": domains[:100]}); failed {
		t.Error("100 domains are refused")
	}
}

// The result has what the domains allow, as many results as asked for, and no more characters than it may. // E08 E09
func TestSearchResults(t *testing.T) {
	w, f := exaWeb(t)
	text, failed := w.text(SearchName, map[string]any{"query": "q <", "blocked_domains": []string{"example.net"}})
	if want := `{"provider":"exa","query":"q <","results":[{"title":"A <b>page</b>","url":"https://a.example.com/1","published_date":"2026-01-02","text":"the summary"}]}`; failed || text != want {
		t.Errorf("%s", text)
	}
	r, err := w.call(SearchName, map[string]any{"query": "q", "allowed_domains": []string{"evil.example.net"}})
	if err != nil || !strings.Contains(string(r.Structured), `"results":[{"url":"https://evil.example.net/2","text":"three"}]`) {
		t.Errorf("%v %s", err, r.Structured)
	}
	f.results = nil
	for i := range 20 {
		f.results = append(f.results, map[string]any{"url": fmt.Sprintf("https://example.com/%d", i), "text": strings.Repeat(`"ü`, 30_000)})
	}
	for _, c := range []struct {
		depth, size string
		most        int
	}{
		{"text", "low", 4 * 4096}, {"text", "medium", 20_000}, {"text", "high", 20_000}, {"full_text", "low", 4 * 4096}, {"full_text", "medium", 4 * 8192}, {"full_text", "high", 50_000},
	} {
		text, _ := w.text(SearchName, map[string]any{"query": "q", "content_depth": c.depth, "search_context_size": c.size, "max_results": 10})
		var result struct {
			Results   []hit
			Truncated bool
		}
		n := utf8.RuneCountInString(text)
		if err := json.Unmarshal([]byte(text), &result); err != nil || len(result.Results) != 10 || n > c.most || n < c.most*8/10 || !result.Truncated {
			t.Errorf("%s %s: %v, %d results, %d characters of %d", c.depth, c.size, err, len(result.Results), n, c.most)
		}
	}
	f.results = nil
	for i := range 10 {
		f.results = append(f.results, map[string]any{"url": "https://example.com/" + strings.Repeat("x", 3900) + fmt.Sprint(i)})
	}
	if text, _ := w.text(SearchName, map[string]any{"query": "q", "search_context_size": "low", "max_results": 10}); utf8.RuneCountInString(text) > 4*4096 || !json.Valid([]byte(text)) {
		t.Errorf("%d characters", utf8.RuneCountInString(text))
	}
}

// A search that lacks something says what to set and where, and the run goes on. // C22
func TestSearchPrerequisites(t *testing.T) {
	w, f := exaWeb(t)
	delete(w.secrets, "secret:EXA_API_KEY")
	if text, failed := w.text(SearchName, map[string]any{"query": "q"}); !failed || !strings.HasPrefix(text, `{"error":"Exa API key not configured.`) || !strings.Contains(text, `"setting":"EXA_API_KEY"`) || f.body != nil {
		t.Errorf("%s", text)
	}
	w.secrets["secret:EXA_API_KEY"] = "old-key"
	if text, failed := w.text(SearchName, map[string]any{"query": "q"}); !failed || !strings.Contains(text, "refuses the key: Invalid API key") || strings.Contains(text, "old-key") {
		t.Errorf("%s", text)
	}
	w.secrets["secret:EXA_API_KEY"] = "exa-key"
	for status, want := range map[int]string{429: "no room for more", 402: "no credit left", 500: "status 500: broken"} {
		f.status, f.answer = status, "broken"
		if text, failed := w.text(SearchName, map[string]any{"query": "q"}); !failed || !strings.Contains(text, want) {
			t.Errorf("%d: %s", status, text)
		}
	}
	for provider, setting := range map[string]string{org.SearchSearxNG: "web.search.url", org.SearchCustom: "web.search.url", "other": "web.search.provider"} {
		w.settings.Search = org.WebSearch{Provider: provider}
		if text, failed := w.text(SearchName, map[string]any{"query": "q"}); !failed || !strings.Contains(text, setting) {
			t.Errorf("%s: %s", provider, text)
		}
	}
	w.settings.Search = org.WebSearch{Provider: org.SearchSearxNG, URL: "http://127.0.0.1:1", APIKey: "secret:none"}
	if text, failed := w.text(SearchName, map[string]any{"query": "q"}); !failed || !strings.Contains(text, "web.search.api_key") {
		t.Errorf("%s", text)
	}
}

// The provider SearXNG, as its documentation of the search API describes it. // E08
func TestSearxNG(t *testing.T) {
	var got *http.Request
	answer, status := `{"query":"q","number_of_results":0,"results":[{"url":"https://example.com/a","title":"A","content":"about a","publishedDate":"2026-01-01T00:00:00","engine":"e","positions":[1]},`+
		`{"url":"https://sub.example.net/b","title":"B","content":"","publishedDate":null}],"answers":[],"corrections":[],"infoboxes":[],"suggestions":[],"unresponsive_engines":[]}`, 200
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		if r.URL.Query().Get("format") != "json" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	})
	w := newWeb(t, nil)
	w.settings.Search = org.WebSearch{Provider: org.SearchSearxNG, URL: s.URL + "/searx/", APIKey: "secret:k"}
	w.secrets["secret:k"] = "t"
	text, failed := w.text(SearchName, map[string]any{"query": "q & r", "allowed_domains": []string{"example.com", "example.org"}})
	if failed || text != `{"provider":"searxng","query":"q & r","results":[{"title":"A","url":"https://example.com/a","published_date":"2026-01-01T00:00:00","text":"about a"}]}` {
		t.Errorf("%s", text)
	}
	query := got.URL.Query()
	if got.Method != "GET" || got.URL.Path != "/searx/search" || query.Get("q") != "q & r site:example.com OR site:example.org" ||
		query.Get("pageno") != "1" || got.Header.Get("Authorization") != "Bearer t" {
		t.Errorf("%s %s %v", got.Method, got.URL, got.Header)
	}
	for _, answer = range []string{`{"results":[],"unresponsive_engines":[]}`, `{"results":[]}`, `{"results":[],"unresponsive_engines":{}}`} {
		if text, failed := w.text(SearchName, map[string]any{"query": "q"}); failed || text != `{"provider":"searxng","query":"q","results":[]}` {
			t.Errorf("nothing was found, and the model reads %s", text)
		}
	}
	answer = `{"results":[],"unresponsive_engines":[["brave","Suspended: too many requests"],["google","CAPTCHA"]]}`
	if text, failed := w.text(SearchName, map[string]any{"query": "q"}); !failed || !strings.Contains(text, "brave: Suspended: too many requests; google: CAPTCHA.") {
		t.Errorf("the engines failed, and the model reads %s", text)
	}
	status = 403
	if text, failed := w.text(SearchName, map[string]any{"query": "q"}); !failed || !strings.Contains(text, "search.formats") {
		t.Errorf("%s", text)
	}
	status, answer = 200, "<html>"
	if text, failed := w.text(SearchName, map[string]any{"query": "q"}); !failed || !strings.Contains(text, "is not a list of results") {
		t.Errorf("%s", text)
	}
}

// What a provider cannot honour is refused, not ignored. // E08
func TestOptionsThatAProviderDoesNotHave(t *testing.T) {
	w := newWeb(t, nil)
	for _, provider := range []string{org.SearchSearxNG, org.SearchDuckDuckGo} {
		w.settings.Search = org.WebSearch{Provider: provider, URL: "http://127.0.0.1:1"}
		for name, value := range map[string]string{
			"mode": "neural", "category": "news", "content_depth": "text", "start_published_date": "2026-01-01", "end_published_date": "2026-01-01",
			"start_crawl_date": "2026-01-01", "end_crawl_date": "2026-01-01", "include_text": "x", "exclude_text": "x", "country": "US",
		} {
			if text, failed := w.text(SearchName, map[string]any{"query": "q", name: value}); !failed || !strings.Contains(text, "cannot honour "+name) {
				t.Errorf("%s %s: %s", provider, name, text)
			}
		}
		domains := strings.Split(strings.TrimSuffix(strings.Repeat("example.com,", 11), ","), ",")
		if text, failed := w.text(SearchName, map[string]any{"query": "q", "allowed_domains": domains}); !failed || !strings.Contains(text, "at most 10 allowed_domains") {
			t.Errorf("%s: %s", provider, text)
		}
	}
}

const duckPage = `<!DOCTYPE html><html><body><div id="links" class="results">
<div class="result results_links result--ad"><h2><a class="result__a" href="https://duckduckgo.com/y.js?ad_domain=x">Buy</a></h2><a class="result__snippet">ad</a></div>
<div class="result results_links results_links_deep web-result"><div class="links_main result__body">
<h2 class="result__title"><a rel="nofollow" class="result__a" href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fexample.com%2Fa%3Fx%3D1&amp;rut=abc">The <b>first</b> page</a></h2>
<a class="result__snippet" href="//duckduckgo.com/l/?uddg=x">About <b>it</b>.</a></div></div>
<div class="result"><a class="result__a" href="https://example.org/b">Second</a></div>
<div class="result"><a class="result__a" href="javascript:alert(1)">Third</a></div>
</div></body></html>`

func TestDuckDuckGo(t *testing.T) {
	status, query := 200, ""
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		query = r.URL.Query().Get("q")
		w.Header().Set("Content-Type", "text/html; charset=UTF-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, duckPage)
	})
	w := newWeb(t, nil)
	w.settings.Search = org.WebSearch{Provider: org.SearchDuckDuckGo, URL: s.URL + "/html/"}
	text, failed := w.text(SearchName, map[string]any{"query": "q", "allowed_domains": []string{"example.com", "example.org"}})
	if failed || text != `{"provider":"duckduckgo","query":"q","results":[{"title":"The first page","url":"https://example.com/a?x=1","text":"About it."},{"title":"Second","url":"https://example.org/b"}]}` || query != "q site:example.com OR site:example.org" {
		t.Errorf("%q %s", query, text)
	}
	status = 202
	if text, failed := w.text(SearchName, map[string]any{"query": "q"}); !failed || !strings.Contains(text, "refuses requests of programs") {
		t.Errorf("%s", text)
	}
}

// A custom endpoint gets the options as they were given. // E08
func TestCustomSearch(t *testing.T) {
	var body map[string]any
	answer := `{"results":[{"title":"A","url":"https://example.com/","text":"x","published_date":"2026-01-01","author":"me"}]}`
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body = nil
		_ = json.NewDecoder(r.Body).Decode(&body)
		_, _ = io.WriteString(w, answer)
	})
	w := newWeb(t, nil)
	w.settings.Search = org.WebSearch{Provider: org.SearchCustom, URL: s.URL + "/find?v=1"}
	text, failed := w.text(SearchName, map[string]any{"query": "q", "mode": "keyword", "country": "US", "start_published_date": "2026-01-01"})
	if failed || !strings.Contains(text, `"author":"me"`) {
		t.Errorf("%s", text)
	}
	want := map[string]any{"query": "q", "max_results": 5.0, "search_context_size": "medium", "content_depth": "snippets", "mode": "keyword", "country": "US", "start_published_date": "2026-01-01T00:00:00.000Z"}
	if diff := cmp.Diff(want, body); diff != "" {
		t.Error(diff)
	}
	answer = `{"hits":[]}`
	if text, failed := w.text(SearchName, map[string]any{"query": "q"}); !failed || !strings.Contains(text, "is not {") {
		t.Errorf("%s", text)
	}
}

// The decoders of providers' answers take anything.
func FuzzSearchAnswers(f *testing.F) {
	f.Add(duckPage)
	f.Add(`{"results":[{"title":null,"url":"https://example.com","highlights":["a"]}]}`)
	f.Add(`{"results":[{"url":7}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		n := 5
		a := searchArguments{Query: "q", MaxResults: &n, ContextSize: "low", Blocked: []string{"example.net"}}
		for name, read := range map[string]func([]byte) ([]hit, error){
			"exa": exaHits, "searxng": searxHits, "duckduckgo": func(data []byte) ([]hit, error) { return duckHits(string(data)) },
		} {
			hits, err := read([]byte(text))
			if err != nil {
				continue
			}
			r := searchResult(name, search{searchArguments: a}, hits)
			var result struct{ Results []hit }
			if err := json.Unmarshal(r.Structured, &result); err != nil || len(result.Results) > n || utf8.RuneCount(r.Structured) > 4*4096 {
				t.Fatalf("%s: %v, %d results, %d bytes", name, err, len(result.Results), len(r.Structured))
			}
			for _, h := range result.Results {
				if !a.allows(h.URL) {
					t.Fatalf("%s: %q", name, h.URL)
				}
			}
		}
	})
}
