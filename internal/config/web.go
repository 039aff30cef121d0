package config

import (
	"errors"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// maxWebHosts is how many hosts http_request may have.
const maxWebHosts = 100

// webKeys are the settings of the tools for the web. As with runtimeKeys, the zero value must mean the default.
func webKeys(w *org.Web) []key {
	return []key{
		{name: "search", value: configObject{object{webSearchKeys(&w.Search)}}, doc: "Who answers web_search."},
		{name: "scrape", value: configObject{object{webScrapeKeys(&w.Scrape)}}, doc: "Who reads pages for web_scrape."},
		{name: "http_hosts", value: filledList{texts(&w.HTTPHosts, []string{"*"}, "host name, *.example.com or *", checkWebHost).notEmpty("is empty, so http_request could reach no host; remove the tool, or list hosts")},
			doc: "Hosts that http_request may reach, at most 100. *.example.com: all names below example.com. The outbound policy applies as well."},
		{name: "http_methods", value: filledList{words(&w.HTTPMethods, org.WebMethods()...).or(org.WebMethods()).notEmpty("is empty, so http_request could send nothing; remove the tool, or list methods")},
			doc: "Methods that http_request may use."},
	}
}

func webSearchKeys(s *org.WebSearch) []key {
	return []key{
		{name: "provider", value: word(&s.Provider, org.SearchExa, org.SearchExa, org.SearchSearxNG, org.SearchDuckDuckGo, org.SearchCustom),
			doc: "exa: needs a key. searxng: an instance of SearXNG at url. duckduckgo: the HTML page, without a key. custom: your own endpoint at url. See tool-web.md."},
		{name: "url", value: address(&s.URL, checkURL).or("the provider's own; searxng and custom have none"), doc: "Base URL of exa, of the SearXNG instance or of the DuckDuckGo page; URL of the custom endpoint. The outbound policy applies to it."},
		{name: "api_key", value: text(&s.APIKey, "", "reference", checkVaultRef).or("EXA_API_KEY of the org for exa, otherwise none"), doc: "A secret of the vault, such as secret:search_key. searxng and custom get it as a bearer token. Not for duckduckgo."},
	}
}

func webScrapeKeys(s *org.WebScrape) []key {
	return []key{
		{name: "provider", value: word(&s.Provider, org.ScrapeOwn, org.ScrapeOwn, org.ScrapeFirecrawl),
			doc: "own: the gateway's own reader, without a key. firecrawl: Firecrawl's API, with FIRECRAWL_API_KEY of the org."},
		{name: "url", value: address(&s.URL, checkURL).or("https://api.firecrawl.dev"), doc: "Only for firecrawl: base URL of the API. The outbound policy applies to it."},
	}
}

// checkWebHost takes a host name, or * alone or as its first label.
func checkWebHost(s string) error {
	if s == "*" {
		return nil
	}
	name := strings.TrimPrefix(s, "*.")
	if strings.Contains(name, "*") || strings.ToLower(s) != s {
		return errors.New("must be a host name in lower case such as api.example.com, *.example.com for all names below it, or *")
	}
	return checkHost(name)
}

// checkWeb compares the keys of the tools for the web with each other.
func (d *decoder) checkWeb(path string, w org.Web) {
	s := w.Search
	switch s.Provider {
	case org.SearchSearxNG, org.SearchCustom:
		if s.URL == "" {
			d.failPath(join(join(path, "search"), "url"), "is required for the provider %s", s.Provider)
		}
	case org.SearchDuckDuckGo:
		if s.APIKey != "" {
			d.failPath(join(join(path, "search"), "api_key"), "duckduckgo takes no key; remove it")
		}
	}
	if w.Scrape.URL != "" && w.Scrape.Provider != org.ScrapeFirecrawl {
		d.failPath(join(join(path, "scrape"), "url"), "is only for the provider firecrawl; remove it")
	}
	if len(w.HTTPHosts) > maxWebHosts {
		d.failPath(join(path, "http_hosts"), "lists %d hosts; want at most %d", len(w.HTTPHosts), maxWebHosts)
	}
}

// filledList is a list of texts whose default stands for a list without items, as the stores keep it.
type filledList struct{ list[string] }

func (l filledList) json() any {
	if len(*l.into) == 0 {
		return l.def
	}
	return l.list.json()
}

func (l filledList) shown() string {
	if len(*l.into) == 0 {
		return l.defaultText()
	}
	return l.list.shown()
}
