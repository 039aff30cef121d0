package files_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
)

// searches is the runtime of an org with a search endpoint. more are settings of web_search.
func searches(search *Endpoint, more string) string {
	return fmt.Sprintf(`{builtin_tools: [{name: web_search%s}], web: {search: {provider: custom, url: %q}}}`, more, search.URL)
}

// web_search_options of chat, and the options of the hosted tool of Responses, reach the org's own search. // P38 E09
func TestOptionsOfTheHostedSearch(t *testing.T) {
	NoLeaks(t)
	search := NewSearch(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if strings.Contains(string(got.Body), `"role":"tool"`) {
			Says("done").Write(w)
			return
		}
		Asks(Use("web_search", `{"query":"q","allowed_domains":["a.example","c.example"],"search_context_size":"high"}`)).Write(w)
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.WithBuiltins(searches(search, ", hosted: true"))))
	const filters = `"search_context_size":"low","filters":{"allowed_domains":["a.example"],"blocked_domains":["x.example"]}`
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"model":"m","messages":[{"role":"user","content":"x"}],"web_search_options":{` + filters + `,"user_location":{"type":"approximate","approximate":{"country":"de","city":"Ulm"}}}}`,
		"/v1/responses":        `{"model":"m","input":"x","tools":[{"type":"web_search",` + filters + `,"user_location":{"type":"approximate","country":"DE","city":"Ulm"}}]}`,
	} {
		got, _ := search.All()
		asked := len(up.Requests())
		a := d.Send("POST", path, strings.NewReader(body))
		if a.Status != 200 || !strings.Contains(string(a.Body), "done") || a.Header.Get("Turnpike-Dropped-Params") != "" {
			t.Fatalf("%s: %d %q %s", path, a.Status, a.Header.Get("Turnpike-Dropped-Params"), a.Body)
		}
		one := SearchesOf(t, search, len(got))
		if len(one) != 1 || one[0]["search_context_size"] != "low" || fmt.Sprint(one[0]["allowed_domains"], one[0]["blocked_domains"]) != "[a.example] [x.example]" || fmt.Sprint(one[0]["country"], one[0]["city"]) != "DEUlm" {
			t.Errorf("%s: the endpoint got %v", path, one)
		}
		for _, r := range up.Requests()[asked:] {
			if strings.Contains(string(r.Body), "web_search_options") || strings.Contains(string(r.Body), "b.example/2") {
				t.Errorf("%s: the provider got %s", path, r.Body)
			}
		}
		if path == "/v1/responses" && !strings.Contains(string(a.Body), `"type":"web_search_call","status":"completed","action":{"type":"search","query":"q"}`) {
			t.Errorf("the output is %s", a.Body)
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
		if a := d.Send("POST", path, strings.NewReader(body)); a.Status != 400 || !strings.Contains(string(a.Body), fmt.Sprintf(`"param":%q`, want)) {
			t.Errorf("%s: %d %s", body, a.Status, a.Body)
		}
	}
}

// Without a hosted web_search the options are the provider's, and with the loop off too. // P38
func TestOptionsOfASearchGoToTheProvider(t *testing.T) {
	search := NewSearch(t)
	const options = `"web_search_options":{"search_context_size":"low","user_location":{"type":"exact"}}`
	for name, c := range map[string]struct{ runtime, header string }{
		"not hosted":  {searches(search, ""), "false"},
		"not enabled": {searches(search, ", hosted: true, enabled: false"), "false"},
		"loop off":    {searches(search, ", hosted: true"), "true"},
		"no tools":    {"{}", "false"},
	} {
		up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) { Says("done").Write(w) })
		d := Manage(MustRun(t, Site{Upstream: up.URL}.WithBuiltins(c.runtime)))
		a := d.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}],`+options+`}`), "turnpike-mcp-disabled", c.header)
		if all := up.Requests(); a.Status != 200 || len(all) != 1 || !strings.Contains(string(all[0].Body), options) {
			t.Errorf("%s: %d %s, the provider got %v", name, a.Status, a.Body, all)
		}
	}
}

// A result with the options of a request is not another request's. // E09
func TestSearchesWithOptionsAreNotCached(t *testing.T) {
	search := NewSearch(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, got Received) {
		if strings.Contains(string(got.Body), `"role":"tool"`) {
			Says("done").Write(w)
			return
		}
		Asks(Use("web_search", `{"query":"q"}`)).Write(w)
	})
	d := Manage(MustRun(t, Site{Upstream: up.URL}.WithBuiltins("{tool_cache_ttl_seconds: 600, "+strings.TrimPrefix(searches(search, ", hosted: true"), "{"))))
	for i, c := range []struct {
		options string
		want    int // searches so far
	}{
		{"", 1}, {"", 1}, {`,"web_search_options":{"filters":{"blocked_domains":["a.example"]}}`, 2}, {`,"web_search_options":{"filters":{"blocked_domains":["a.example"]}}`, 3}, {"", 3},
	} {
		asked := len(up.Requests())
		if a := d.Send("POST", "/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"x"}]`+c.options+`}`)); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
		got, _ := search.All()
		if second := string(up.Requests()[asked+1].Body); len(got) != c.want || strings.Contains(second, "a.example/1") != (c.options == "") {
			t.Errorf("request %d: %d searches, want %d; the provider got %s", i, len(got), c.want, second)
		}
	}
}

// A key that may not use the search is refused on both APIs; without the options the request has no search. // P38
func TestAKeyThatMayNotSearch(t *testing.T) {
	NoLeaks(t)
	search := NewSearch(t)
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, _ Received) { Says("done").Write(w) })
	d := Manage(MustRun(t, Site{Upstream: up.URL}.WithBuiltins(searches(search, ", hosted: true"))))
	key := "Bearer " + d.Do("POST", "/api/keys", "owner-key", `{"name":"narrow","role":"member","tools":["web_scrape"]}`, 201)["key"].(string)
	for body, want := range map[string]int{
		`{"model":"m","messages":[{"role":"user","content":"x"}],"web_search_options":{}}`: 403,
		`{"model":"m","input":"x","tools":[{"type":"web_search"}]}`:                        403,
		`{"model":"m","messages":[{"role":"user","content":"x"}]}`:                         200,
	} {
		path := "/v1/responses"
		if strings.Contains(body, "messages") {
			path = "/v1/chat/completions"
		}
		a := d.Send("POST", path, strings.NewReader(body), "Authorization", key)
		if a.Status != want || want == 403 && !strings.Contains(string(a.Body), "tool_not_allowed") {
			t.Errorf("%s: %d %s", body, a.Status, a.Body)
		}
	}
	for _, r := range up.Requests() {
		if strings.Contains(string(r.Body), `"web_search"`) {
			t.Errorf("the model was offered %s", r.Body)
		}
	}
}
