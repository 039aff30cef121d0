package webtool

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// maxPlace is how many characters the city, the region and the time zone of a user may have.
const maxPlace = 200

// searchOptions are what a request says of all its searches. The model cannot change them. Its zero value says nothing.
type searchOptions struct {
	ContextSize string   `json:"search_context_size,omitempty"`
	Allowed     []string `json:"allowed_domains,omitempty"`
	Blocked     []string `json:"blocked_domains,omitempty"`
	Country     string   `json:"country,omitempty"`
	place

	places map[string]string // where the request has the members of user_location, by their names
}

// place is where the user of a request is, beside the country. Only custom endpoints get it.
type place struct {
	City     string `json:"city,omitempty"`
	Region   string `json:"region,omitempty"`
	Timezone string `json:"timezone,omitempty"`
}

// SearchOptions reads what a request says of web_search: web_search_options of chat, or the members of the hosted tool of
// Responses. It returns the options for [tool.Call].Options, or a [*catalog.OptionError] if the provider of the settings cannot honour
// one of them. Members that are null say nothing.
func SearchOptions(settings org.WebSearch, raw json.RawMessage) (json.RawMessage, error) {
	var o searchOptions
	err := members("", raw, map[string]func(at string, value json.RawMessage) error{
		"search_context_size": func(at string, value json.RawMessage) error {
			return oneOf(at, value, &o.ContextSize, "low", "medium", "high")
		},
		"user_location": o.readLocation,
		"filters": func(at string, value json.RawMessage) error {
			return members(at+".", value, map[string]func(string, json.RawMessage) error{
				"allowed_domains": func(at string, value json.RawMessage) error { return readDomains(at, value, &o.Allowed) },
				"blocked_domains": func(at string, value json.RawMessage) error { return readDomains(at, value, &o.Blocked) },
			})
		},
		"return_token_budget": func(at string, value json.RawMessage) error { return oneOf(at, value, new(string), "default") },
		"external_web_access": func(at string, value json.RawMessage) error {
			if string(value) != "true" {
				return &catalog.OptionError{Member: at, Reason: "web_search always reads the web; the value must be true"}
			}
			return nil
		},
		"search_content_types": func(at string, value json.RawMessage) error {
			var kinds []string
			if json.Unmarshal(value, &kinds) != nil || slices.ContainsFunc(kinds, func(kind string) bool { return kind != "text" }) {
				return &catalog.OptionError{Member: at, Reason: `web_search finds text; the value must be ["text"]`}
			}
			return nil
		},
	})
	if err == nil {
		err = o.checkFor(providerOf(settings))
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(o)
}

// readLocation reads user_location: of Responses, or of chat, which has the place in the member approximate.
func (o *searchOptions) readLocation(at string, value json.RawMessage) error {
	o.places = map[string]string{}
	text := func(into *string) func(string, json.RawMessage) error {
		return func(at string, value json.RawMessage) error {
			o.places[at[strings.LastIndexByte(at, '.')+1:]] = at
			if json.Unmarshal(value, into) != nil || utf8.RuneCountInString(*into) > maxPlace {
				return &catalog.OptionError{Member: at, Reason: fmt.Sprintf("must be a text of at most %d characters", maxPlace)}
			}
			return nil
		}
	}
	read := map[string]func(string, json.RawMessage) error{
		"type": func(at string, value json.RawMessage) error { return oneOf(at, value, new(string), "approximate") },
		"city": text(&o.City), "region": text(&o.Region), "timezone": text(&o.Timezone),
		"country": func(at string, value json.RawMessage) error {
			if err := text(&o.Country)(at, value); err != nil {
				return err
			}
			if o.Country = strings.ToUpper(o.Country); o.Country != "" && !isCountry(o.Country) {
				return &catalog.OptionError{Member: at, Reason: "must be two letters, such as US"}
			}
			return nil
		},
	}
	read["approximate"] = func(at string, value json.RawMessage) error {
		place := maps.Clone(read)
		delete(place, "type")
		delete(place, "approximate")
		return members(at+".", value, place)
	}
	return members(at+".", value, read)
}

// checkFor returns an error for the first option that a provider cannot honour.
func (o *searchOptions) checkFor(provider string) error {
	if provider == org.SearchCustom {
		return nil
	}
	for _, one := range []struct{ name, value string }{{"city", o.City}, {"region", o.Region}, {"timezone", o.Timezone}, {"country", o.Country}} {
		if one.value != "" && (one.name != "country" || provider != org.SearchExa) {
			return &catalog.OptionError{Member: o.places[one.name], Reason: "the search provider of this org does not take it; remove it"}
		}
	}
	if provider != org.SearchExa && len(o.Allowed) > maxSiteDomains {
		return &catalog.OptionError{Member: "filters.allowed_domains", Reason: fmt.Sprintf("the search provider of this org takes at most %d domains", maxSiteDomains)}
	}
	return nil
}

// members reads the members of an object. A member without a reader is an error.
func members(at string, raw json.RawMessage, read map[string]func(at string, value json.RawMessage) error) error {
	var object map[string]json.RawMessage
	if json.Unmarshal(raw, &object) != nil {
		return &catalog.OptionError{Member: strings.TrimSuffix(at, "."), Reason: "must be an object"}
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if string(object[name]) == "null" {
			continue
		}
		one, known := read[name]
		if !known {
			return &catalog.OptionError{Member: at + name, Reason: "the gateway's web_search does not have this option; remove it"}
		}
		if err := one(at+name, object[name]); err != nil {
			return err
		}
	}
	return nil
}

func oneOf(at string, value json.RawMessage, into *string, words ...string) error {
	if json.Unmarshal(value, into) != nil || !slices.Contains(words, *into) {
		return &catalog.OptionError{Member: at, Reason: "must be " + strings.Join(words, ", ")}
	}
	return nil
}

func readDomains(at string, value json.RawMessage, into *[]string) error {
	if json.Unmarshal(value, into) != nil {
		return &catalog.OptionError{Member: at, Reason: "must be a list of domains"}
	}
	if len(*into) > MaxSearchDomains {
		return &catalog.OptionError{Member: at, Reason: fmt.Sprintf("takes at most %d domains", MaxSearchDomains)}
	}
	if wrong := normalDomains(*into); wrong != "" {
		return &catalog.OptionError{Member: at, Reason: fmt.Sprintf("%q is not a domain such as example.com", cutText(wrong, 100))}
	}
	return nil
}

var isDomain = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,62}\.)*[a-z0-9_-]{1,63}$`)

// normalDomains writes domains as they are compared, and returns the first that is none; "" = all are.
func normalDomains(list []string) (wrong string) {
	for i, domain := range list {
		list[i] = strings.ToLower(strings.TrimSuffix(strings.TrimPrefix(domain, "*."), "."))
		if !isDomain.MatchString(list[i]) || len(list[i]) > 253 || !strings.Contains(list[i], ".") {
			return domain
		}
	}
	return ""
}

func isCountry(text string) bool { return regexp.MustCompile(`^[A-Z]{2}$`).MatchString(text) }

// restrict applies what the request of a call says. Domains must be allowed by both.
func (a *search) restrict(raw json.RawMessage) error {
	var o searchOptions
	if len(raw) == 0 {
		return nil
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return refuse("the search options of the request cannot be read: %v", err)
	}
	if o.ContextSize != "" {
		a.ContextSize, a.byRequest = o.ContextSize, true
	}
	if o.Country != "" {
		a.Country = o.Country
	}
	a.where = o.place
	if len(o.Allowed) > 0 {
		within := domainsWithin(a.Allowed, o.Allowed)
		if len(within) == 0 {
			return refuse("the user allows only results of these domains: %s", strings.Join(o.Allowed, ", "))
		}
		a.Allowed = within
	}
	a.Blocked = append(slices.Clip(a.Blocked), o.Blocked...)
	slices.Sort(a.Blocked)
	a.Blocked = slices.Compact(a.Blocked)
	return nil
}

// domainsWithin returns the domains that both lists allow, with their subdomains. An empty list of the model allows all.
func domainsWithin(model, request []string) (out []string) {
	if len(model) == 0 {
		return request
	}
	for _, m := range model {
		for _, r := range request {
			switch {
			case isWithin(m, r):
				out = append(out, m)
			case isWithin(r, m):
				out = append(out, r)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// isWithin reports whether a host is a domain or one below it.
func isWithin(host, domain string) bool { return host == domain || strings.HasSuffix(host, "."+domain) }
