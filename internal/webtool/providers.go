package webtool

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/html"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// The base URLs of the providers.
const (
	exaURL        = "https://api.exa.ai"
	duckDuckGoURL = "https://html.duckduckgo.com/html/"
)

// exaRequest is the body of POST /search of Exa.
type exaRequest struct {
	Query          string      `json:"query"`
	Type           string      `json:"type"`
	Category       string      `json:"category,omitempty"`
	UserLocation   string      `json:"userLocation,omitempty"`
	NumResults     int         `json:"numResults"`
	IncludeDomains []string    `json:"includeDomains,omitempty"`
	ExcludeDomains []string    `json:"excludeDomains,omitempty"`
	StartCrawl     string      `json:"startCrawlDate,omitempty"`
	EndCrawl       string      `json:"endCrawlDate,omitempty"`
	StartPublished string      `json:"startPublishedDate,omitempty"`
	EndPublished   string      `json:"endPublishedDate,omitempty"`
	IncludeText    []string    `json:"includeText,omitempty"`
	ExcludeText    []string    `json:"excludeText,omitempty"`
	Contents       exaContents `json:"contents"`
}

// exaContents says what Exa returns of each page. A nil member is not asked for.
type exaContents struct {
	Text       *exaText  `json:"text,omitempty"`
	Highlights *struct{} `json:"highlights,omitempty"`
	Summary    *struct{} `json:"summary,omitempty"`
}

type exaText struct {
	MaxCharacters int `json:"maxCharacters"`
}

// exa asks Exa.
func (s *Source) exa(ctx context.Context, settings org.WebSearch, a search) ([]hit, error) {
	setting := agent.ExaKey
	if settings.APIKey != "" {
		setting = "web.search.api_key"
	}
	key, err := s.secret(ctx, cmp.Or(settings.APIKey, "secret:"+agent.ExaKey),
		"Exa API key not configured. An administrator must set it: PUT /api/settings/EXA_API_KEY, or another web.search.provider.", setting)
	if err != nil {
		return nil, err
	}
	body := exaRequest{
		Query: a.Query, Type: a.Mode, Category: a.Category, UserLocation: a.Country, NumResults: *a.MaxResults,
		IncludeDomains: a.Allowed, ExcludeDomains: a.Blocked, StartCrawl: a.StartCrawl, EndCrawl: a.EndCrawl,
		StartPublished: a.StartPublished, EndPublished: a.EndPublished, IncludeText: listOf(a.IncludeText), ExcludeText: listOf(a.ExcludeText),
	}
	switch a.Depth {
	case "summary":
		body.Contents.Summary = &struct{}{}
	case "text", "full_text":
		body.Contents.Text = &exaText{a.characters() / *a.MaxResults}
	default:
		body.Contents.Highlights = &struct{}{}
	}
	data, _, err := s.ask(ctx, http.MethodPost, strings.TrimSuffix(cmp.Or(settings.URL, exaURL), "/")+"/search", body, http.Header{"X-Api-Key": {key}, "Accept": {"application/json"}})
	if err != nil {
		return nil, toldBy(err, "Exa", setting)
	}
	return exaHits(data)
}

// exaHits reads the answer of Exa.
func exaHits(data []byte) ([]hit, error) {
	var answer struct {
		Results []struct {
			Title, URL, PublishedDate, Author, Text, Summary *string
			Highlights                                       []string
		}
	}
	if json.Unmarshal(data, &answer) != nil {
		return nil, refuse("Exa answered with something that is not a list of results")
	}
	hits := make([]hit, 0, len(answer.Results))
	for _, r := range answer.Results {
		text := cmp.Or(said(r.Summary), said(r.Text), strings.Join(r.Highlights, " … "))
		hits = append(hits, hit{Title: said(r.Title), URL: said(r.URL), Published: said(r.PublishedDate), Author: said(r.Author), Text: text})
	}
	return hits, nil
}

func said(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func listOf(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// searxNG asks an instance of SearXNG.
func (s *Source) searxNG(ctx context.Context, settings org.WebSearch, a search) ([]hit, error) {
	if settings.URL == "" {
		return nil, &refusal{text: "The SearXNG instance is not configured. An administrator must set its URL.", setting: "web.search.url"}
	}
	header, err := s.bearer(ctx, settings)
	if err != nil {
		return nil, err
	}
	query := url.Values{"q": {a.queryWithDomains()}, "format": {"json"}, "pageno": {"1"}}
	data, _, err := s.ask(ctx, http.MethodGet, withQuery(strings.TrimSuffix(settings.URL, "/")+"/search", query), nil, header)
	if hasStatus(err, http.StatusForbidden) {
		return nil, &refusal{text: "The SearXNG instance refuses JSON. Its settings.yml must list json in search.formats.", setting: "web.search.url"}
	}
	if err != nil {
		return nil, toldBy(err, "SearXNG", "web.search.api_key")
	}
	return searxHits(data)
}

// searxHits reads the answer of SearXNG.
func searxHits(data []byte) ([]hit, error) {
	var answer struct {
		Results []struct{ Title, URL, Content, PublishedDate, Author *string }
		Failed  json.RawMessage `json:"unresponsive_engines"`
	}
	if json.Unmarshal(data, &answer) != nil || answer.Results == nil {
		return nil, refuse("SearXNG answered with something that is not a list of results; is the URL that of an instance?")
	}
	if failed := failedEngines(answer.Failed); failed != "" && len(answer.Results) == 0 {
		return nil, refuse("SearXNG found nothing, because search engines failed: %s. There may be results; try again later", failed)
	}
	hits := make([]hit, 0, len(answer.Results))
	for _, r := range answer.Results {
		hits = append(hits, hit{
			Title: said(r.Title), URL: said(r.URL), Published: said(r.PublishedDate), Author: said(r.Author), Text: said(r.Content),
		})
	}
	return hits, nil
}

// maxEngines is how many search engines a refusal names.
const maxEngines = 10

// failedEngines returns the search engines of an instance that failed, each with its reason; "" = none did. The list has
// pairs of a name and a reason.
func failedEngines(list json.RawMessage) string {
	var engines [][]string
	if json.Unmarshal(list, &engines) != nil {
		return ""
	}
	var all []string
	for _, e := range engines[:min(len(engines), maxEngines)] {
		if one := cutText(strings.Join(e, ": "), 100); one != "" {
			all = append(all, one)
		}
	}
	return strings.Join(all, "; ")
}

// duckDuckGo reads the HTML page of DuckDuckGo.
func (s *Source) duckDuckGo(ctx context.Context, settings org.WebSearch, a search) ([]hit, error) {
	data, header, err := s.ask(ctx, http.MethodGet, withQuery(cmp.Or(settings.URL, duckDuckGoURL), url.Values{"q": {a.queryWithDomains()}}), nil, http.Header{"Accept": {"text/html"}})
	if hasStatus(err, http.StatusAccepted) {
		return nil, refuse("DuckDuckGo refuses requests of programs at the moment; try again later")
	}
	if err != nil {
		return nil, toldBy(err, "DuckDuckGo", "web.search.provider")
	}
	text, ok := textOf(data, header.Get("Content-Type"), false)
	if !ok {
		return nil, refuse("DuckDuckGo answered with something that is not a page")
	}
	return duckHits(text)
}

// duckHits reads the results of a page of DuckDuckGo, without its advertisements.
func duckHits(text string) ([]hit, error) {
	root, err := html.Parse(strings.NewReader(text))
	if err != nil {
		return nil, refuse("the page of DuckDuckGo cannot be read")
	}
	var hits []hit
	for n := range root.Descendants() {
		if !hasClass(n, "result") || hasClass(n, "result--ad") {
			continue
		}
		var h hit
		for part := range n.Descendants() {
			switch {
			case hasClass(part, "result__a") && h.URL == "":
				h.URL, h.Title = duckURL(attribute(part, "href")), strings.Join(strings.Fields(innerText(part)), " ")
			case hasClass(part, "result__snippet") && h.Text == "":
				h.Text = strings.Join(strings.Fields(innerText(part)), " ")
			}
		}
		if h.URL != "" {
			hits = append(hits, h)
		}
	}
	return hits, nil
}

// duckURL returns the URL that a link of DuckDuckGo leads to; "" = it is an advertisement, or none.
func duckURL(href string) string {
	u, err := url.Parse(href)
	if err != nil {
		return ""
	}
	if host := u.Hostname(); host == "" || host == "duckduckgo.com" || strings.HasSuffix(host, ".duckduckgo.com") {
		return u.Query().Get("uddg")
	}
	return href
}

// customSearch asks the endpoint of the org.
func (s *Source) customSearch(ctx context.Context, settings org.WebSearch, a search) ([]hit, error) {
	if settings.URL == "" {
		return nil, &refusal{text: "The search endpoint is not configured. An administrator must set its URL.", setting: "web.search.url"}
	}
	header, err := s.bearer(ctx, settings)
	if err != nil {
		return nil, err
	}
	header.Set("Accept", "application/json")
	body := struct {
		searchArguments
		place
	}{a.searchArguments, a.where}
	data, _, err := s.ask(ctx, http.MethodPost, settings.URL, body, header)
	if err != nil {
		return nil, toldBy(err, "the search endpoint", "web.search.api_key")
	}
	var answer struct{ Results []hit }
	if json.Unmarshal(data, &answer) != nil || answer.Results == nil {
		return nil, refuse(`the search endpoint answered with something that is not {"results": [{"title", "url", "text"}]}`)
	}
	return answer.Results, nil
}

// bearer returns the header with the key of the settings, if they have one.
func (s *Source) bearer(ctx context.Context, settings org.WebSearch) (http.Header, error) {
	h := http.Header{}
	if settings.APIKey == "" {
		return h, nil
	}
	key, err := s.secret(ctx, settings.APIKey, "The key of the search provider is not in the vault. An administrator must store it.", "web.search.api_key")
	if err == nil {
		h.Set("Authorization", "Bearer "+key)
	}
	return h, err
}

// withQuery adds a query to a URL, which may have one.
func withQuery(address string, query url.Values) string {
	if strings.Contains(address, "?") {
		return address + "&" + query.Encode()
	}
	return address + "?" + query.Encode()
}

// attribute returns an attribute of an element; "" = it has none.
func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Namespace == "" && a.Key == name {
			return a.Val
		}
	}
	return ""
}

func hasClass(n *html.Node, class string) bool {
	if n.Type != html.ElementNode {
		return false
	}
	for one := range strings.FieldsSeq(attribute(n, "class")) {
		if one == class {
			return true
		}
	}
	return false
}

// innerText returns the text in a node.
func innerText(n *html.Node) string {
	var b bytes.Buffer
	for child := range n.Descendants() {
		if child.Type == html.TextNode {
			b.WriteString(child.Data)
		}
	}
	return b.String()
}
