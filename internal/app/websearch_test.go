package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// newSearch is a search endpoint of an org, whose answer has one result of each of two domains.
func newSearch(t *testing.T) *endpoint {
	return newEndpoint(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"results":[{"title":"One","url":"https://a.example/1","text":"first"},{"title":"Two","url":"https://b.example/2","text":"second"}]}`)
	})
}

// searches is the runtime of an org with a search endpoint. more are settings of web_search.
func searches(search *endpoint, more string) string {
	return fmt.Sprintf(`{builtin_tools: [{name: web_search%s}], web: {search: {provider: custom, url: %q}}}`, more, search.URL)
}

// searchesOf returns what the endpoint got of a request, as JSON objects.
func searchesOf(t *testing.T, search *endpoint, before int) (all []map[string]any) {
	t.Helper()
	got, _ := search.all()
	for _, one := range got[before:] {
		var body map[string]any
		if _, text, _ := strings.Cut(one, "{"); json.Unmarshal([]byte("{"+text), &body) != nil {
			t.Fatalf("the endpoint got %s", one)
		}
		all = append(all, body)
	}
	return all
}

// web_search_options of chat, and the options of the hosted tool of Responses, reach the org's own search. // P38 E09
func TestOptionsOfTheHostedSearch(t *testing.T) {
	noLeaks(t)
	search := newSearch(t)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, got received) {
		if strings.Contains(string(got.body), `"role":"tool"`) {
			says("done").write(w)
			return
		}
		asks(call{"web_search", `{"query":"q","allowed_domains":["a.example","c.example"],"search_context_size":"high"}`}).write(w)
	})
	d := manage(MustRun(t, site{upstream: up.URL}.withBuiltins(searches(search, ", hosted: true"))))
	const filters = `"search_context_size":"low","filters":{"allowed_domains":["a.example"],"blocked_domains":["x.example"]}`
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"model":"m","messages":[{"role":"user","content":"x"}],"web_search_options":{` + filters + `,"user_location":{"type":"approximate","approximate":{"country":"de","city":"Ulm"}}}}`,
		"/v1/responses":        `{"model":"m","input":"x","tools":[{"type":"web_search",` + filters + `,"user_location":{"type":"approximate","country":"DE","city":"Ulm"}}]}`,
	} {
		got, _ := search.all()
		asked := len(up.requests())
		a := d.send("POST", path, strings.NewReader(body))
		if a.status != 200 || !strings.Contains(string(a.body), "done") || a.header.Get("Turnpike-Dropped-Params") != "" {
			t.Fatalf("%s: %d %q %s", path, a.status, a.header.Get("Turnpike-Dropped-Params"), a.body)
		}
		one := searchesOf(t, search, len(got))
		if len(one) != 1 || one[0]["search_context_size"] != "low" || fmt.Sprint(one[0]["allowed_domains"], one[0]["blocked_domains"]) != "[a.example] [x.example]" || fmt.Sprint(one[0]["country"], one[0]["city"]) != "DEUlm" {
			t.Errorf("%s: the endpoint got %v", path, one)
		}
		for _, r := range up.requests()[asked:] {
			if strings.Contains(string(r.body), "web_search_options") || strings.Contains(string(r.body), "b.example/2") {
				t.Errorf("%s: the provider got %s", path, r.body)
			}
		}
		if path == "/v1/responses" && !strings.Contains(string(a.body), `"type":"web_search_call","status":"completed","action":{"type":"search","query":"q"}`) {
			t.Errorf("the output is %s", a.body)
		}
	}
	for body, want := range map[string]string{
		`{"model":"m","messages":[{"role":"user","content":"x"}],"web_search_options":{"filters":{"blocked_domains":["no domain"]}}}`:                        "web_search_options.filters.blocked_domains",
		`{"model":"m","messages":[{"role":"user","content":"x"}],"web_search_options":{"return_token_budget":"unlimited"}}`:                                  "web_search_options.return_token_budget",
		`{"model":"m","input":"x","tools":[{"type":"function","name":"f"},{"type":"web_search_preview","user_location":{"type":"exact"}}]}`:                  "tools[1].user_location.type",
		`{"model":"m","input":"x","tools":[{"type":"web_search","search_context_size":"low"},{"type":"web_search_preview","search_context_size":"medium"}]}`: "tools[1]",
	} {
		path := "/v1/responses"
		if strings.Contains(body, "messages") {
			path = "/v1/chat/completions"
		}
		if a := d.send("POST", path, strings.NewReader(body)); a.status != 400 || !strings.Contains(string(a.body), fmt.Sprintf(`"param":%q`, want)) {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
}

// Without a hosted web_search the options are the provider's, and with the loop off too. // P38
func TestOptionsOfASearchGoToTheProvider(t *testing.T) {
	search := newSearch(t)
	const options = `"web_search_options":{"search_context_size":"low","user_location":{"type":"exact"}}`
	for name, c := range map[string]struct{ runtime, header string }{
		"not hosted":  {searches(search, ""), "false"},
		"not enabled": {searches(search, ", hosted: true, enabled: false"), "false"},
		"loop off":    {searches(search, ", hosted: true"), "true"},
		"no tools":    {"{}", "false"},
	} {
		up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ received) { says("done").write(w) })
		d := manage(MustRun(t, site{upstream: up.URL}.withBuiltins(c.runtime)))
		a := d.send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}],`+options+`}`), "turnpike-mcp-disabled", c.header)
		if all := up.requests(); a.status != 200 || len(all) != 1 || !strings.Contains(string(all[0].body), options) {
			t.Errorf("%s: %d %s, the provider got %v", name, a.status, a.body, all)
		}
	}
}

// A result with the options of a request is not another request's. // E09
func TestSearchesWithOptionsAreNotCached(t *testing.T) {
	search := newSearch(t)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, got received) {
		if strings.Contains(string(got.body), `"role":"tool"`) {
			says("done").write(w)
			return
		}
		asks(call{"web_search", `{"query":"q"}`}).write(w)
	})
	d := manage(MustRun(t, site{upstream: up.URL}.withBuiltins("{tool_cache_ttl_seconds: 600, "+strings.TrimPrefix(searches(search, ", hosted: true"), "{"))))
	for i, c := range []struct {
		options string
		want    int // searches so far
	}{
		{"", 1}, {"", 1}, {`,"web_search_options":{"filters":{"blocked_domains":["a.example"]}}`, 2}, {`,"web_search_options":{"filters":{"blocked_domains":["a.example"]}}`, 3}, {"", 3},
	} {
		asked := len(up.requests())
		if a := d.send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}]`+c.options+`}`)); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		got, _ := search.all()
		if second := string(up.requests()[asked+1].body); len(got) != c.want || strings.Contains(second, "a.example/1") != (c.options == "") {
			t.Errorf("request %d: %d searches, want %d; the provider got %s", i, len(got), c.want, second)
		}
	}
}

// A key that may not use the search is refused on both APIs; without the options the request has no search. // P38
func TestAKeyThatMayNotSearch(t *testing.T) {
	noLeaks(t)
	search := newSearch(t)
	up := newUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ received) { says("done").write(w) })
	d := manage(MustRun(t, site{upstream: up.URL}.withBuiltins(searches(search, ", hosted: true"))))
	key := "Bearer " + d.do("POST", "/api/keys", "owner-key", `{"name":"narrow","role":"member","tools":["web_scrape"]}`, 201)["key"].(string)
	for body, want := range map[string]int{
		`{"model":"m","messages":[{"role":"user","content":"x"}],"web_search_options":{}}`: 403,
		`{"model":"m","input":"x","tools":[{"type":"web_search"}]}`:                        403,
		`{"model":"m","messages":[{"role":"user","content":"x"}]}`:                         200,
	} {
		path := "/v1/responses"
		if strings.Contains(body, "messages") {
			path = "/v1/chat/completions"
		}
		a := d.send("POST", path, strings.NewReader(body), "Authorization", key)
		if a.status != want || want == 403 && !strings.Contains(string(a.body), "tool_not_allowed") {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	for _, r := range up.requests() {
		if strings.Contains(string(r.body), `"web_search"`) {
			t.Errorf("the model was offered %s", r.body)
		}
	}
}
