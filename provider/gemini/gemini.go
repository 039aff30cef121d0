// Package gemini makes models of Google Gemini models of an agent.
package gemini

import (
	"cmp"
	"context"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/provider/gemini"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

// Options say how the provider is called. The zero value calls it without a key.
type Options struct {
	APIKey  string
	BaseURL string // with the version of the API; "" = https://generativelanguage.googleapis.com/v1beta

	// HTTPClient makes the requests, with its timeout, which includes the answer; nil = one without a
	// timeout and without a proxy.
	HTTPClient *http.Client
}

// Model returns a model, such as "gemini-3-flash". It connects to nothing. Images must be data, or URLs that
// the provider fetches itself.
func Model(name string, o Options) model.Model {
	e := wire.Endpoint{
		BaseURL:   cmp.Or(o.BaseURL, "https://generativelanguage.googleapis.com/v1beta"),
		APIKey:    func(context.Context) (string, error) { return o.APIKey, nil },
		Transport: egress.ProgramTransport(o.HTTPClient),
	}
	return named{gemini.New(e, gemini.Options{}), name}
}

// named is a model with its name.
type named struct {
	model.Model
	name string
}

// ModelName implements model.Named.
func (n named) ModelName() (provider, name string) { return "gemini", n.name }
