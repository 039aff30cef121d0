// Package openai makes models of OpenAI, and of every provider with an API of the same form, models of an
// agent.
package openai

import (
	"cmp"
	"context"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/provider/openai"
	"github.com/turnpike-gateway/turnpike/internal/provider/openairesponses"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

// Options say how the provider is called. The zero value calls OpenAI without a key.
type Options struct {
	APIKey  string
	BaseURL string // "" = https://api.openai.com/v1

	// Header is sent with each request, for an organisation or a proxy. The fields that the provider needs, such as
	// that of APIKey and Content-Type, are not replaced. Nil = no others.
	Header http.Header

	// HTTPClient makes the requests, with its timeout, which includes the answer; nil = one without a
	// timeout and without a proxy.
	HTTPClient *http.Client

	// Provider is the name of the provider, by which prices are found; "" = openai.
	Provider string
}

// Model returns a model over the Chat Completions API, such as "gpt-5.4". It connects to nothing. Wrong options are
// an error of the first run.
func Model(name string, o Options) model.Model {
	return o.program(name, openai.New(o.endpoint(), openai.Options{}))
}

// Responses returns a model over the Responses API.
func Responses(name string, o Options) model.Model {
	return o.program(name, openairesponses.New(o.endpoint()))
}

func (o Options) program(name string, m model.Model) model.Model {
	return wire.Program{
		Model: m, Provider: cmp.Or(o.Provider, "openai"), Name: name, Wrong: o.endpoint().CheckOption("openai.Options.BaseURL"),
	}
}

func (o Options) endpoint() wire.Endpoint {
	return wire.Endpoint{
		BaseURL:   cmp.Or(o.BaseURL, "https://api.openai.com/v1"),
		APIKey:    func(context.Context) (string, error) { return o.APIKey, nil },
		Transport: egress.ProgramTransport(o.HTTPClient, o.Header),
	}
}
