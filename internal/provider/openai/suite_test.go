package openai

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

const tooLong = "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens."

// OpenAI itself is known by its host.
func TestSuiteAtOpenAI(t *testing.T) {
	providertest.Run(t, providertest.Adapter{
		Column: providertest.OpenAI, Model: "gpt-5", TooLong: tooLong,
		New: func(e wire.Endpoint) model.Model {
			return New(wire.Endpoint{BaseURL: "https://api.openai.com/v1", Transport: redirect{t, e}, Silence: e.Silence}, Options{})
		},
	})
}

func TestSuiteAtACompatibleProvider(t *testing.T) {
	providertest.Run(t, providertest.Adapter{
		Column: providertest.Compatible, Model: "some-model", TooLong: tooLong, Lenient: true,
		New: func(e wire.Endpoint) model.Model {
			return New(e, Options{})
		},
	})
}

// redirect sends requests for OpenAI to the fake provider.
type redirect struct {
	t *testing.T
	e wire.Endpoint
}

func (r redirect) RoundTrip(req *http.Request) (*http.Response, error) {
	to, err := url.Parse(r.e.BaseURL)
	if err != nil {
		return nil, err
	}
	if req.URL.Host != "api.openai.com" {
		r.t.Errorf("a request for %s", req.URL)
	}
	req = req.Clone(req.Context())
	req.URL.Scheme, req.URL.Host, req.Host = to.Scheme, to.Host, to.Host
	return r.e.Transport.RoundTrip(req)
}
