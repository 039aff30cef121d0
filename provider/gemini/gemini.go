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

	// Header is sent with each request, for an organisation or a proxy. The fields that the provider needs, such as
	// that of APIKey and Content-Type, are not replaced. Nil = no others.
	Header http.Header

	// HTTPClient makes the requests, with its timeout, which includes the answer; nil = one without a
	// timeout and without a proxy.
	HTTPClient *http.Client
}

// Model returns a model, such as "gemini-3-flash". It connects to nothing. Wrong options are an
// error of the first run. Images must be data, or URLs that
// the provider fetches itself.
func Model(name string, o Options) model.Model {
	e := wire.Endpoint{
		BaseURL:   cmp.Or(o.BaseURL, "https://generativelanguage.googleapis.com/v1beta"),
		APIKey:    func(context.Context) (string, error) { return o.APIKey, nil },
		Transport: egress.ProgramTransport(o.HTTPClient, o.Header),
	}
	return wire.Program{
		Model: gemini.New(e, gemini.Options{}), Provider: "gemini", Name: name, Wrong: e.CheckOption("gemini.Options.BaseURL"),
	}
}
