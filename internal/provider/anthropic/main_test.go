package anthropic

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func recordings(t testing.TB) []providertest.Recording {
	t.Helper()
	return providertest.Recordings(t, "anthropic")
}

// serve starts a loopback provider and returns a Provider that talks to it.
func serve(t testing.TB, h http.HandlerFunc, change ...func(*wire.Endpoint)) *Provider {
	t.Helper()
	return New(providertest.Serve(t, h, change...), Options{})
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
