package bedrock

import (
	"io"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// decoding is the decoder, without a bound of memory.
func decoding() providertest.Decode {
	return func(src io.Reader, emit func(model.Delta) error) (*model.Turn, error) { return decode(src, nil, emit) }
}

// encode writes a request.
func (p *Provider) encode(req *model.Request) ([]byte, error) {
	t := translate(req)
	return t.Write(t.request)
}

// dialect is what sends answers back.
func dialect() providertest.Dialect {
	return providertest.Dialect{Decode: decoding(), Encode: New(wire.Endpoint{BaseURL: "http://p/v1"}, Options{}).encode}
}

// signed are the options with which a strict fake accepts requests.
func signed() Options {
	return Options{
		Region:      upstreamtest.AWSRegion,
		Credentials: Static(upstreamtest.AWSAccessKeyID, upstreamtest.AWSSecretAccessKey, upstreamtest.AWSSessionToken),
	}
}
