package egress

import (
	"context"
	"net/http"
	"time"
)

// Annotate adds headers that derive from a request's context, such as its trace
// context.
type Annotate = func(context.Context, http.Header)

// annotatedTransport calls add on the headers of each request before it is sent.
type annotatedTransport struct {
	next http.RoundTripper
	add  Annotate
}

// RoundTrip implements [http.RoundTripper]. It does not modify the caller's
// request.
func (a annotatedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	out := *r
	out.Header = r.Header.Clone()
	if out.Header == nil {
		out.Header = http.Header{}
	}
	a.add(r.Context(), out.Header)
	return a.next.RoundTrip(&out)
}

// CloseIdleConnections implements [http.Client.CloseIdleConnections].
func (a annotatedTransport) CloseIdleConnections() {
	if c, ok := a.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// withAnnotations wraps t so that its requests are annotated, if [Options.Annotate] is set.
func (e *Egress) withAnnotations(t *http.Transport) http.RoundTripper {
	if e.annotateHeader == nil {
		return t
	}
	return annotatedTransport{t, e.annotateHeader}
}

// Providers returns [Egress.Operator] with annotations, for requests that serve
// a client's request.
func (e *Egress) Providers() http.RoundTripper { return e.withAnnotations(e.operator) }

// OperatorClient returns a client for an address that the operator configured.
// The timeout covers a whole request, including reading the body.
func (e *Egress) OperatorClient(timeout time.Duration) *http.Client {
	return &http.Client{Transport: e.operator, Timeout: timeout}
}
