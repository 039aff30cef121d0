package org

// Web are the settings of an org for the tools http_request, web_search and web_scrape. The zero value
// means the defaults. It has no secrets.
type Web struct {
	Search WebSearch `json:"search,omitzero"`
	Scrape WebScrape `json:"scrape,omitzero"`

	HTTPHosts   []string `json:"http_hosts,omitempty"`   // hosts that http_request may reach: names, or patterns such as *.example.com; nil = all
	HTTPMethods []string `json:"http_methods,omitempty"` // methods of http_request; nil = WebMethods
}

// WebSearch says who answers web_search.
type WebSearch struct {
	Provider string `json:"provider,omitempty"` // "" = SearchExa
	URL      string `json:"url,omitempty"`      // of the API; "" = the provider's own
	APIKey   string `json:"api_key,omitempty"`  // a reference to the vault; "" = that of the setting EXA_API_KEY for SearchExa, otherwise none is sent
}

// WebScrape says who reads pages for web_scrape.
type WebScrape struct {
	Provider string `json:"provider,omitempty"` // "" = ScrapeOwn
	URL      string `json:"url,omitempty"`      // of the API of ScrapeFirecrawl; "" = the provider's own
}

// The values of [WebSearch].Provider.
const (
	SearchExa        = "exa"
	SearchSearxNG    = "searxng"    // an instance of SearXNG at URL
	SearchDuckDuckGo = "duckduckgo" // the HTML page, without a key
	SearchCustom     = "custom"     // an endpoint of the org at URL
)

// The values of [WebScrape].Provider.
const (
	ScrapeOwn       = "own"
	ScrapeFirecrawl = "firecrawl"
)

// WebMethods returns the methods that http_request can have.
func WebMethods() []string { return []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} }
