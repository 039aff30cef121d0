package httpd

import (
	"mime"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// checkRequest makes the checks that do not depend on the caller. It runs before
// authentication and reads nothing of the body.
func (a *API) checkRequest(r *http.Request) error {
	for _, check := range [...]func(*http.Request) error{checkHeader, a.checkHost, a.checkOrigin, checkQuery} {
		if err := check(r); err != nil {
			return err
		}
	}
	return nil
}

// checkHeader checks the header against maxFields, maxField and maxHeader.
func checkHeader(r *http.Request) error {
	line := len(r.Method) + len(r.RequestURI) + len(r.Proto) + len("  \r\n")
	fields, total, longest := 1, line+len("Host: \r\n")+len(r.Host), max(line, len(r.Host))
	for name, values := range r.Header {
		for _, v := range values {
			size := len(name) + len(": ") + len(v) + len("\r\n")
			fields, total, longest = fields+1, total+size, max(longest, size)
		}
	}
	if fields > maxFields || total > maxHeader || longest > maxField {
		return fault.New(fault.Header, "header_too_large", "the request header is too large; the limits are %d fields, "+
			"%d bytes for each field and for the request line, and %d bytes in total", maxFields, maxField, maxHeader)
	}
	return nil
}

// checkHost prevents DNS rebinding: a web page whose host name resolves to this
// gateway must not reach it through its visitor's browser. If [Options.Loopback]
// or [Options.Hosts] is set, it refuses a Host header with any other name. IP
// addresses are always accepted, because they cannot be rebound.
func (a *API) checkHost(r *http.Request) error {
	if !a.o.Loopback && len(a.o.Hosts) == 0 || r.Host == "" || isProbe(r) {
		return nil
	}
	name := strings.ToLower((&url.URL{Host: r.Host}).Hostname())
	if _, err := netip.ParseAddr(name); err == nil || isLocalName(name) || slices.Contains(a.o.Hosts, name) {
		return nil
	}
	return fault.New(fault.Misdirected, "host_not_allowed", "the host name %q is not allowed; if it is a name of this gateway, "+
		"add it to public_hosts in the configuration", name)
}

// isLocalName reports whether name always means this machine, so that DNS
// cannot point it elsewhere: localhost, and the names that containers use for
// their host.
func isLocalName(name string) bool {
	switch name {
	case "localhost", "host.docker.internal", "host.containers.internal":
		return true
	}
	return strings.HasSuffix(name, ".localhost")
}

// isProbe reports whether the request is a health check. Health checks reveal and
// change nothing, and load balancers send them with any Host header.
func isProbe(r *http.Request) bool { return r.URL.Path == "/healthz" || r.URL.Path == "/readyz" }

// checkOrigin refuses cross-origin requests that can change something (CSRF).
func (a *API) checkOrigin(r *http.Request) error {
	return a.checkOriginAs(r, r.Method)
}

// checkOriginAs is checkOrigin for a request as if it had the method.
func (a *API) checkOriginAs(r *http.Request, method string) error {
	if a.crossOrigin.Check(&http.Request{Method: method, URL: r.URL, Host: r.Host, Header: r.Header}) == nil {
		return nil
	}
	return fault.New(fault.Forbidden, "origin_not_allowed", "a browser sent this request from the page of another site (%s); "+
		"to allow that site, add it to allowed_origins in the configuration", r.Header.Get("Origin"))
}

// checkQuery refuses a query string that cannot be read as a whole, because net/url leaves out
// the rest, and keys in it, which proxies and access logs store.
func checkQuery(r *http.Request) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	values, err := url.ParseQuery(r.URL.RawQuery)
	for name := range values {
		switch strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name)) {
		case "key", "apikey", "xapikey", "accesstoken", "token", "auth", "authorization":
			return fault.New(fault.Invalid, "key_in_url", "an API key must not be in the URL, because logs store it; send the header "+
				"\"Authorization: Bearer KEY\" instead of the parameter %s, and replace the key", name).In(name)
		}
	}
	if err != nil {
		return fault.New(fault.Invalid, "invalid_query", "the query string of the URL is not valid: separate parameters with &, and encode other characters as %%XX")
	}
	return nil
}

// checkContentType refuses a Content-Type or Content-Encoding other than plain
// JSON, unless the route takes forms, or any type. A missing type passes, as does the form type that curl -d sends by
// default, unless a browser sent it: a browser sends real forms.
func checkContentType(r *http.Request, rt surface.Route) error {
	if r.ContentLength == 0 {
		return nil
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return fault.New(fault.MediaType, "unsupported_encoding", "the content encoding %q is not supported; send the request body unencoded", coding).In("Content-Encoding")
	}
	name := r.Header.Get("Content-Type")
	if rt.AnyType || name == "" || name == "application/json" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(name)
	fromAPage := r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
	switch {
	case err != nil:
	case kind == "application/json", strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"):
		return nil
	case kind == "application/x-www-form-urlencoded" && !fromAPage, kind == "multipart/form-data" && rt.Forms:
		return nil
	}
	return fault.New(fault.MediaType, "unsupported_media_type", "the content type %q is not supported; send JSON, with the header "+
		"\"Content-Type: application/json\"", name).In("Content-Type")
}
