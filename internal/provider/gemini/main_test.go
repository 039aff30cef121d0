package gemini

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
	return providertest.Recordings(t, "gemini")
}

// serve starts a loopback provider and returns a Provider that talks to it.
func serve(t testing.TB, h http.HandlerFunc, change ...func(*wire.Endpoint)) *Provider {
	t.Helper()
	return New(providertest.Serve(t, h, change...), Options{})
}

// encode writes a request.
func (p *Provider) encode(req *model.Request) ([]byte, error) {
	t := p.translate(req)
	return t.Write(t.request)
}
