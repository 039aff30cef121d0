package egress

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

type traceKey struct{}

func TestProvidersAndGuardedTargetsAreAnnotated(t *testing.T) {
	got := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("X-Trace") }))
	defer srv.Close()
	p := DefaultPolicy()
	p.Allowlist = prefixes("127.0.0.1/32")
	e := New(p, Options{Annotate: func(ctx context.Context, h http.Header) { h.Set("X-Trace", ctx.Value(traceKey{}).(string)) }})
	defer e.CloseIdleConnections()
	for name, c := range map[string]struct {
		client *http.Client
		want   string
	}{
		"providers": {&http.Client{Transport: e.Providers()}, "t1"},
		"guarded":   {e.Guarded(GuardedOptions{}), "t1"},
		"operator":  {e.OperatorClient(time.Minute), ""},
	} {
		r, err := http.NewRequestWithContext(context.WithValue(t.Context(), traceKey{}, "t1"), http.MethodGet, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if header := <-got; header != c.want || len(r.Header) != 0 {
			t.Errorf("%s: the server saw %q, want %q; the caller's own header is %v", name, header, c.want, r.Header)
		}
	}
	if plain := New(p, Options{}); plain.Providers() != http.RoundTripper(plain.Operator()) {
		t.Error("without annotations there is something between the caller and the transport")
	}
}
