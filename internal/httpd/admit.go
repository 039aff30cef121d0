package httpd

import (
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// admit says what is wrong with a request whoever sends it, before anybody asks
// who that is. It reads nothing of the body.
func (a *API) admit(r *http.Request) error {
	for _, check := range [...]func(*http.Request) error{headerFits, a.isForUs, a.isNoForgery, hasNoKeyInURL, bodyIsReadable} {
		if err := check(r); err != nil {
			return err
		}
	}
	return nil
}

// headerFits holds the header to its limits.
func headerFits(r *http.Request) error {
	line := len(r.Method) + len(r.RequestURI) + len(r.Proto) + len("  \r\n")
	fields, total, longest := 1, line+len("Host: \r\n")+len(r.Host), max(line, len(r.Host))
	for name, values := range r.Header {
		for _, v := range values {
			size := len(name) + len(": ") + len(v) + len("\r\n")
			fields, total, longest = fields+1, total+size, max(longest, size)
		}
	}
	if fields > maxFields || total > maxHeader || longest > maxField {
		return fault.New(fault.Header, "header_too_large", "the header of the request is too large: it may have %d fields, "+
			"each of %d bytes and all together of %d, as may the request line", maxFields, maxField, maxHeader)
	}
	return nil
}

// isForUs refuses names that are not the gateway's own where a browser on this
// machine can reach it and others cannot: a site whose name leads to this
// machine would be let in with its visitor. Only names can be made to lead
// elsewhere; addresses cannot.
func (a *API) isForUs(r *http.Request) error {
	if !a.o.Loopback && len(a.o.Hosts) == 0 || r.Host == "" || isProbe(r) {
		return nil
	}
	name := strings.ToLower((&url.URL{Host: r.Host}).Hostname())
	if _, err := netip.ParseAddr(name); err == nil || isThisMachine(name) || slices.Contains(a.o.Hosts, name) {
		return nil
	}
	return fault.New(fault.Misdirected, "host_not_allowed", "the gateway is not known as %q; if that is its name, "+
		"add it to public_hosts in the configuration", name)
}

// isThisMachine reports whether nobody can give the name to another machine's
// site: programs on this machine use localhost, and those in containers on it
// the other two.
func isThisMachine(name string) bool {
	switch name {
	case "localhost", "host.docker.internal", "host.containers.internal":
		return true
	}
	return strings.HasSuffix(name, ".localhost")
}

// isProbe reports whether the request is a health check, which tells nothing and
// changes nothing, and is sent to whatever name its sender likes.
func isProbe(r *http.Request) bool { return r.URL.Path == "/healthz" || r.URL.Path == "/readyz" }

// isNoForgery refuses what a page of another site sends to change something.
func (a *API) isNoForgery(r *http.Request) error {
	if a.sites.Check(r) == nil {
		return nil
	}
	return fault.New(fault.Forbidden, "origin_not_allowed", "a browser sent this for a page of another site (%s); "+
		"if that site may, add it to allowed_origins in the configuration", r.Header.Get("Origin"))
}

// hasNoKeyInURL refuses keys where every proxy and log keeps them.
func hasNoKeyInURL(r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	for name := range r.URL.Query() {
		switch strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name)) {
		case "key", "apikey", "xapikey", "accesstoken", "token", "auth", "authorization":
			return fault.New(fault.Invalid, "key_in_url", "a key does not belong into a URL, which logs keep: send the header "+
				"\"Authorization: Bearer KEY\" instead of the parameter %s, and replace the key", name).In(name)
		}
	}
	return nil
}

// bodyIsReadable refuses bodies that are said to be something else than plain
// JSON. Without a word from the client, or with the one that curl -d says
// unasked, the body speaks for itself; but a form of a web page is one.
func bodyIsReadable(r *http.Request) error {
	if r.ContentLength == 0 {
		return nil
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return fault.New(fault.MediaType, "unsupported_encoding", "the request body has the encoding %q; send it without one", coding).In("Content-Encoding")
	}
	said := r.Header.Get("Content-Type")
	if said == "" || said == "application/json" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(said)
	fromAPage := r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
	switch {
	case err != nil:
	case kind == "application/json", strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"):
		return nil
	case kind == "application/x-www-form-urlencoded" && !fromAPage:
		return nil
	}
	return fault.New(fault.MediaType, "unsupported_media_type", "the request body is said to be %q; send JSON, with the header "+
		"\"Content-Type: application/json\"", said).In("Content-Type")
}
