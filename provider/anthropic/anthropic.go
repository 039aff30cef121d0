// Package anthropic makes models of Anthropic models of an agent.
package anthropic

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/provider/anthropic"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

// Options say how the provider is called. The zero value calls it without a key.
type Options struct {
	APIKey  string
	BaseURL string // with the version of the API; "" = https://api.anthropic.com/v1

	// MaxTokens limits the output of each call, without thinking; 0 = 8,192.
	MaxTokens int

	// Header is sent with each request, for an organisation or a proxy. The fields that the provider needs, such as
	// that of APIKey and Content-Type, are not replaced. Nil = no others.
	Header http.Header

	// HTTPClient makes the requests, with its timeout, which includes the answer; nil = one without a
	// timeout and without a proxy.
	HTTPClient *http.Client
}

// Model returns a model, such as "claude-sonnet-5". It connects to nothing. Wrong options are an
// error of the first run. Images must be data, or URLs that
// the provider fetches itself.
func Model(name string, o Options) model.Model {
	e := wire.Endpoint{
		BaseURL:   cmp.Or(o.BaseURL, "https://api.anthropic.com/v1"),
		APIKey:    func(context.Context) (string, error) { return o.APIKey, nil },
		Transport: egress.ProgramTransport(o.HTTPClient, o.Header),
	}
	wrong := e.CheckOption("anthropic.Options.BaseURL")
	if wrong == nil && o.MaxTokens < 0 {
		wrong = fmt.Errorf("anthropic.Options.MaxTokens is %d; use 0 or more", o.MaxTokens)
	}
	return wire.Program{
		Model: anthropic.New(e, anthropic.Options{MaxTokens: o.MaxTokens}), Provider: "anthropic", Name: name, Wrong: wrong,
	}
}
