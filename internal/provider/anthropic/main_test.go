package anthropic

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func recordings(t testing.TB) []providertest.Recording {
	t.Helper()
	return providertest.Recordings(t, "anthropic")
}

// serve starts a loopback provider and returns a Provider that talks to it.
func serve(t testing.TB, h http.HandlerFunc, change ...func(*Options)) *Provider {
	t.Helper()
	srv := httptest.NewServer(h)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		srv.Close()
	})
	o := Options{BaseURL: srv.URL + "/v1", Transport: transport}
	for _, c := range change {
		c(&o)
	}
	return New(o)
}

// answers serves one body.
func answers(status int, header map[string]string, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		for k, v := range header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// heard collects deltas.
type heard struct {
	deltas          []model.Delta
	text, reasoning string
}

func (h *heard) emit(d model.Delta) error {
	h.deltas = append(h.deltas, d)
	switch d.Kind {
	case model.TextDelta:
		h.text += d.Text
	case model.ReasoningDelta:
		h.reasoning += d.Text
	}
	return nil
}

// ofKind returns the items of a kind.
func ofKind(items []item.Item, kind item.Kind) []item.Item {
	var out []item.Item
	for _, it := range items {
		if it.Kind == kind {
			out = append(out, it)
		}
	}
	return out
}
