package egress

import "net/http"

// ProgramTransport returns the transport of a program's provider: over the client that the program gives,
// or, if it is nil, that of [Egress.Operator]. Redirects are not followed, unless the client says
// how. Each request gets the fields of header that it does not have; nil = none.
func ProgramTransport(client *http.Client, header http.Header) http.RoundTripper {
	if len(header) == 0 {
		return programTransportOf(client)
	}
	return withHeader{programTransportOf(client), canonical(header)}
}

func programTransportOf(client *http.Client) http.RoundTripper {
	if client == nil {
		return New(DefaultPolicy(), Options{}).Operator()
	}
	with := *client
	if with.CheckRedirect == nil {
		with.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	return programTransport{&with}
}

// canonical returns a copy of a header in which net/http finds the names.
func canonical(header http.Header) http.Header {
	out := http.Header{}
	for name, values := range header {
		for _, value := range values {
			out.Add(name, value)
		}
	}
	return out
}

// withHeader adds fields to requests.
type withHeader struct {
	http.RoundTripper
	header http.Header
}

// RoundTrip implements [http.RoundTripper]. It changes the header of the request, which the provider makes for each: a
// copy of the request would hold its body until the answer has ended.
func (w withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	for name, values := range w.header {
		if _, ok := r.Header[name]; !ok {
			r.Header[name] = values
		}
	}
	return w.RoundTripper.RoundTrip(r)
}

// programTransport makes requests with a client, which has a timeout and cookies of its own.
type programTransport struct{ client *http.Client }

// RoundTrip implements [http.RoundTripper].
func (p programTransport) RoundTrip(r *http.Request) (*http.Response, error) { return p.client.Do(r) }
