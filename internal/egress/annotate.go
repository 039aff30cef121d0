package egress

import (
	"context"
	"net/http"
	"time"
)

// Annotate adds to the header of a request what its context says, such as which
// trace it belongs to.
type Annotate = func(context.Context, http.Header)

// annotated adds to the header of every request before it is sent.
type annotated struct {
	next http.RoundTripper
	add  Annotate
}

// RoundTrip implements [http.RoundTripper]: the caller's request stays as it is.
func (a annotated) RoundTrip(r *http.Request) (*http.Response, error) {
	out := *r
	out.Header = r.Header.Clone()
	if out.Header == nil {
		out.Header = http.Header{}
	}
	a.add(r.Context(), out.Header)
	return a.next.RoundTrip(&out)
}

// CloseIdleConnections lets [http.Client.CloseIdleConnections] through.
func (a annotated) CloseIdleConnections() {
	if c, ok := a.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// annotate returns t with what Options say.
func (e *Egress) annotate(t *http.Transport) http.RoundTripper {
	if e.add == nil {
		return t
	}
	return annotated{t, e.add}
}

// Providers is [Egress.Operator] for requests that a client's request is the
// cause of: they are annotated.
func (e *Egress) Providers() http.RoundTripper { return e.annotate(e.operator) }

// OperatorClient returns a client for an address that the operator configured,
// whose requests take at most so long as a whole.
func (e *Egress) OperatorClient(timeout time.Duration) *http.Client {
	return &http.Client{Transport: e.operator, Timeout: timeout}
}
