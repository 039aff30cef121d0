package egress

import "net/http"

// ProgramTransport returns the transport of a program's provider: over the client that the program gives,
// or, if it is nil, that of [Egress.Operator]. Redirects are not followed, unless the client says
// how.
func ProgramTransport(client *http.Client) http.RoundTripper {
	if client == nil {
		return New(DefaultPolicy(), Options{}).Operator()
	}
	with := *client
	if with.CheckRedirect == nil {
		with.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return programTransport{&with}
}

// programTransport makes requests with a client, which has a timeout and cookies of its own.
type programTransport struct{ client *http.Client }

// RoundTrip implements [http.RoundTripper].
func (p programTransport) RoundTrip(r *http.Request) (*http.Response, error) { return p.client.Do(r) }
