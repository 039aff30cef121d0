package gemini

import (
	"io"
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts a loopback provider and returns a Provider that talks to it.
func serve(t testing.TB, h http.HandlerFunc, change ...func(*wire.Endpoint)) *Provider {
	t.Helper()
	return New(providertest.Serve(t, h, change...), Options{})
}

// decoding is the decoder, without a bound of memory.
func decoding() providertest.Decode {
	return func(src io.Reader, emit func(model.Delta) error) (*model.Turn, error) {
		return decode(src, 1, nil, nil, emit)
	}
}

func decodeAll(src io.Reader) providertest.Outcome { return decoding().Run(src) }

// encode writes a request.
func (p *Provider) encode(req *model.Request) ([]byte, error) {
	t := p.translate(req)
	return t.Write(t.request)
}

// dialect is what sends answers back.
func dialect() providertest.Dialect {
	return providertest.Dialect{Decode: decoding(), Encode: New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{}).encode}
}
