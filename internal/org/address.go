package org

import "fmt"

// Address is a URL that a setting contains, and the path of the setting.
type Address struct{ Path, URL string }

// Addresses returns the URLs in the runtime settings to which the gateway connects with the outbound
// policy: those of http hooks, of the tools for the web, and of buckets. Databases are checked by
// connecting to them.
func (r Runtime) Addresses() []Address {
	var all []Address
	add := func(url, path string, args ...any) {
		if url != "" {
			all = append(all, Address{fmt.Sprintf(path, args...), url})
		}
	}
	for i, h := range r.Hooks {
		add(h.Config.URL, "hooks[%d].config.url", i)
	}
	add(r.Web.Search.URL, "web.search.url")
	add(r.Web.Scrape.URL, "web.scrape.url")
	for i, b := range r.Buckets {
		add(b.Endpoint, "buckets[%d].endpoint", i)
	}
	return all
}
