package openairesponses

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
	return New(providertest.Serve(t, h, change...))
}

// decoding is the decoder, without a bound of memory.
func decoding() providertest.Decode {
	return func(src io.Reader, emit func(model.Delta) error) (*model.Turn, error) {
		return decode(src, nil, false, emit)
	}
}

func decodeAll(src io.Reader) providertest.Outcome { return decoding().Run(src) }

// dialect is what sends answers back.
func dialect() providertest.Dialect {
	return providertest.Dialect{
		Decode: decoding(), Encode: func(req *model.Request) ([]byte, error) { return encode(req, optional{}), nil },
	}
}

// heard collects what deltas say, by kind.
type heard map[model.DeltaKind]string

func (h heard) emit(d model.Delta) error {
	h[d.Kind] += d.Text
	return nil
}
