package webtool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// domains returns a JSON list of so many domains.
func domains(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("d%d.example", i)
	}
	text, _ := json.Marshal(all)
	return string(text)
}

// An option of a request is honoured, or the refusal names it. "" = it is honoured. // E09 P38
func TestOptionsOfARequest(t *testing.T) {
	const exa, duck, custom = org.SearchExa, org.SearchDuckDuckGo, org.SearchCustom
	for _, c := range []struct{ provider, options, refused string }{
		{exa, `{}`, ""}, {exa, `{"search_context_size":"high","user_location":null,"filters":{}}`, ""},
		{exa, `[]`, ":must be an object"},
		{exa, `{"search_context_size":"huge"}`, "search_context_size:must be low, medium, high"},
		{exa, `{"search_context_size":1}`, "search_context_size:must be"},
		{exa, `{"filters":{"allowed_domains":["a.example"],"blocked_domains":["b.example"]}}`, ""},
		{exa, `{"filters":{"allowed_domains":` + domains(100) + `}}`, ""},
		{exa, `{"filters":{"allowed_domains":` + domains(101) + `}}`, "filters.allowed_domains:takes at most 100"},
		{exa, `{"filters":{"blocked_domains":` + domains(101) + `}}`, "filters.blocked_domains:takes at most 100"},
		{exa, `{"filters":{"blocked_domains":["https://b.example"]}}`, `filters.blocked_domains:"https://b.example" is not a domain`},
		{exa, `{"filters":{"blocked_domains":"b.example"}}`, "filters.blocked_domains:must be a list"},
		{exa, `{"filters":{"blocked_domain":[]}}`, "filters.blocked_domain:the gateway's web_search does not have this option"},
		{exa, `{"filters":[]}`, "filters:must be an object"},
		{duck, `{"filters":{"allowed_domains":` + domains(11) + `}}`, "filters.allowed_domains:the search provider of this org takes at most 10"},
		{exa, `{"user_location":{"type":"approximate","country":"de"}}`, ""},
		{exa, `{"user_location":{"type":"approximate","approximate":{"country":"DE"}}}`, ""},
		{exa, `{"user_location":{"type":"exact"}}`, "user_location.type:must be approximate"},
		{exa, `{"user_location":{"country":"DEU"}}`, "user_location.country:must be two letters"},
		{exa, `{"user_location":{"approximate":{"country":"DE","city":"Ulm"}}}`, "user_location.approximate.city:the search provider of this org does not take it"},
		{exa, `{"user_location":{"region":"Bayern"}}`, "user_location.region:the search provider"},
		{exa, `{"user_location":{"approximate":{"type":"approximate"}}}`, "user_location.approximate.type:the gateway's web_search does not have"},
		{duck, `{"user_location":{"country":"DE"}}`, "user_location.country:the search provider"},
		{custom, `{"user_location":{"country":"DE","city":"Ulm","region":"BW","timezone":"Europe/Berlin"}}`, ""},
		{custom, `{"user_location":{"city":"` + strings.Repeat("u", 201) + `"}}`, "user_location.city:must be a text of at most 200"},
		{exa, `{"return_token_budget":"default","external_web_access":true,"search_content_types":["text"]}`, ""},
		{exa, `{"return_token_budget":"unlimited"}`, "return_token_budget:must be default"},
		{exa, `{"external_web_access":false}`, "external_web_access:web_search always reads the web"},
		{exa, `{"search_content_types":["text","image"]}`, "search_content_types:web_search finds text"},
		{exa, `{"search_description":"x"}`, "search_description:the gateway's web_search does not have"},
	} {
		_, err := SearchOptions(org.WebSearch{Provider: c.provider}, json.RawMessage(c.options))
		got := ""
		if wrong, ok := errors.AsType[*catalog.OptionError](err); ok {
			got = wrong.Member + ":" + wrong.Reason
		}
		if (err == nil) != (c.refused == "") || !strings.HasPrefix(got, c.refused) {
			t.Errorf("%s %s: %v, want %q", c.provider, c.options, err, c.refused)
		}
	}
}

// What the request says holds for every call, whatever the model says. // E09
func TestARequestRestrictsTheSearchesOfItsModel(t *testing.T) {
	w, f := exaWeb(t)
	ask := func(options, arguments string) (string, bool) {
		var err error
		if w.asked, err = SearchOptions(w.settings.Search, json.RawMessage(options)); err != nil {
			t.Fatal(err)
		}
		f.body = nil
		return w.text(SearchName, arguments)
	}
	sent := func(name string) string { return fmt.Sprint(f.body[name]) }
	text, _ := ask(`{"filters":{"allowed_domains":["example.com"],"blocked_domains":["x.example"]},"user_location":{"country":"de"}}`, `{"query":"q","country":"US","blocked_domains":["y.example"]}`)
	if sent("includeDomains") != "[example.com]" || sent("excludeDomains") != "[x.example y.example]" || sent("userLocation") != "DE" || strings.Contains(text, "evil.example.net") {
		t.Errorf("sent %v, returned %s", f.body, text)
	}
	ask(`{"filters":{"allowed_domains":["example.com","b.example"]}}`, `{"query":"q","allowed_domains":["a.example.com","c.example.net","d.example.org"]}`)
	if sent("includeDomains") != "[a.example.com]" {
		t.Errorf("sent %v", f.body)
	}
	ask(`{"filters":{"allowed_domains":["a.example.com"]}}`, `{"query":"q","allowed_domains":["example.com"]}`)
	if sent("includeDomains") != "[a.example.com]" {
		t.Errorf("sent %v", f.body)
	}
	if text, isError := ask(`{"filters":{"allowed_domains":["b.example"]}}`, `{"query":"q","allowed_domains":["example.com"]}`); !isError || !strings.Contains(text, "b.example") || f.body != nil {
		t.Errorf("%s, sent %v", text, f.body)
	}
}

// The size of the context is a budget of 4,096, 8,192 or 16,384 tokens. // E09
func TestTheContextSizeOfARequestIsABudgetOfTokens(t *testing.T) {
	w, f := exaWeb(t)
	f.results = []map[string]any{{"url": "https://a.example/", "text": strings.Repeat("w", 200_000)}}
	for size, tokens := range map[string]int{"low": 4096, "medium": 8192, "high": 16_384} {
		var err error
		if w.asked, err = SearchOptions(w.settings.Search, json.RawMessage(`{"search_context_size":"`+size+`"}`)); err != nil {
			t.Fatal(err)
		}
		text, _ := w.text(SearchName, `{"query":"q","max_results":1,"content_depth":"text","search_context_size":"low"}`)
		asked := f.body["contents"].(map[string]any)["text"].(map[string]any)["maxCharacters"]
		if most := tokens * 4; len(text) > most || len(text) < most*9/10-300 || asked != float64(most) {
			t.Errorf("%s: %d characters, asked for %v, want %d", size, len(text), asked, most)
		}
	}
}

// A custom endpoint gets the place of the user. The model cannot say one.
func TestACustomEndpointGetsThePlaceOfTheUser(t *testing.T) {
	var got map[string]any
	s := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		got = nil
		_ = json.NewDecoder(r.Body).Decode(&got)
		_, _ = io.WriteString(rw, `{"results":[]}`)
	})
	w := newWeb(t, nil)
	w.settings.Search = org.WebSearch{Provider: org.SearchCustom, URL: s.URL}
	var err error
	if w.asked, err = SearchOptions(w.settings.Search, json.RawMessage(`{"user_location":{"type":"approximate","country":"de","city":"Ulm","region":"BW","timezone":"Europe/Berlin"},"search_context_size":"low"}`)); err != nil {
		t.Fatal(err)
	}
	w.text(SearchName, `{"query":"q"}`)
	want := map[string]any{"query": "q", "max_results": 5.0, "search_context_size": "low", "content_depth": "snippets", "mode": "auto", "country": "DE", "city": "Ulm", "region": "BW", "timezone": "Europe/Berlin"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got = nil
	if text, isError := w.text(SearchName, `{"query":"q","city":"Bonn"}`); !isError || got != nil {
		t.Errorf("the model said a city: %s, sent %v", text, got)
	}
	w.settings.Search = org.WebSearch{Provider: org.SearchDuckDuckGo}
	if text, isError := w.text(SearchName, `{"query":"q"}`); !isError || !strings.Contains(text, "user_location") {
		t.Errorf("with another provider: %s", text)
	}
}
