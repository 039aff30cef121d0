package app

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/provider/anthropic"
	"github.com/turnpike-gateway/turnpike/internal/provider/demo"
	"github.com/turnpike-gateway/turnpike/internal/provider/openai"
	"github.com/turnpike-gateway/turnpike/internal/provider/openairesponses"
	"github.com/turnpike-gateway/turnpike/internal/provider/route"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// providers builds the adapters, in configuration order.
func (a *App) providers(s *settings) ([]route.Provider, error) {
	var out []route.Provider
	for _, p := range s.config.Providers {
		key := s.keys.Providers[p.Name]
		built := route.Provider{Name: p.Name, Models: p.Models}
		switch p.Kind {
		case "openai":
			built.Model = openai.New(a.endpoint(p, p.BaseURL, key), openai.Options{})
		case "openai-responses":
			built.Model = openairesponses.New(a.endpoint(p, p.BaseURL, key))
		case "anthropic":
			built.Model = a.anthropic(p, key)
		case "demo":
			base, err := a.demoModel(p)
			if err != nil {
				return nil, err
			}
			built.Model = openai.New(a.endpoint(p, base, key), openai.Options{})
		default:
			return nil, fmt.Errorf("provider %s: the kind %q is not supported", p.Name, p.Kind)
		}
		out = append(out, built)
	}
	return out, nil
}

func (a *App) anthropic(p config.Provider, key secret.Value) *anthropic.Provider {
	o := anthropic.Options{Fetch: a.fetch}
	if p.DefaultMaxTokens != nil {
		o.MaxTokens = *p.DefaultMaxTokens
	}
	return anthropic.New(a.endpoint(p, withVersion(p.BaseURL), key), o)
}

// withVersion returns a base URL of Anthropic with the version of the API, which
// Anthropic's own clients add and people write or leave out.
func withVersion(base string) string {
	u, err := url.Parse(base)
	if err != nil || strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/v1") {
		return base
	}
	return u.JoinPath("v1").String()
}

// endpoint returns how the adapter of a provider calls it.
func (a *App) endpoint(p config.Provider, baseURL string, key secret.Value) wire.Endpoint {
	return wire.Endpoint{
		BaseURL:   baseURL,
		APIKey:    func(context.Context) (string, error) { return key.Reveal(), nil },
		Transport: a.out.Providers(),
		Log:       a.log.With("provider", p.Name),
	}
}

// demoModel returns where the demo model answers: a server of our own unless
// the configuration names one.
func (a *App) demoModel(p config.Provider) (string, error) {
	if p.BaseURL != "" {
		return p.BaseURL, nil
	}
	if a.demoURL == "" {
		base, err := a.local.Serve(demo.New(demo.Options{}))
		if err != nil {
			return "", err
		}
		a.demoURL = base + "/v1"
	}
	return a.demoURL, nil
}
