package mcptool

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// direct performs requests whose answers are not one frame: streams of
// notifications, and the messages of legacy SSE. It adds the configured headers,
// and so goes to the server's own origin only.
type direct struct{ transport *transport }

// RoundTrip implements [http.RoundTripper].
func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	home, err := url.Parse(d.transport.client.server.URL)
	if err != nil {
		return nil, err
	}
	if !sameOrigin(home, r.URL) {
		return nil, fmt.Errorf("%w to %s", errRedirect, r.URL.Host)
	}
	return d.transport.send(r.Context(), r, r.Method, body, exchangeOf(r.Context()))
}

// sameOrigin reports whether two URLs name the same scheme, host and port.
func sameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case strings.EqualFold(u.Scheme, "https"):
		return "443"
	}
	return "80"
}
