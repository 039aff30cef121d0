package app

import (
	"context"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/provider/demo"
	"github.com/turnpike-gateway/turnpike/internal/provider/openai"
	"github.com/turnpike-gateway/turnpike/internal/provider/route"
)

// providers builds the adapters, in configuration order.
func (a *App) providers() ([]route.Provider, error) {
	var out []route.Provider
	for _, p := range a.config.Providers {
		built := route.Provider{Name: p.Name, Models: p.Models}
		switch p.Kind {
		case "openai":
			built.Model = a.openai(p, p.BaseURL)
		case "demo":
			base, err := a.demoModel(p)
			if err != nil {
				return nil, err
			}
			built.Model = a.openai(p, base)
		default:
			return nil, fmt.Errorf("provider %s: the kind %q is not supported", p.Name, p.Kind)
		}
		out = append(out, built)
	}
	return out, nil
}

func (a *App) openai(p config.Provider, baseURL string) *openai.Provider {
	key := a.keys.Providers[p.Name]
	return openai.New(openai.Options{
		BaseURL:   baseURL,
		APIKey:    func(context.Context) (string, error) { return key.Reveal(), nil },
		Transport: a.out.Providers(),
		Log:       a.log.With("provider", p.Name),
	})
}

// demoModel returns where the demo model answers: a server of our own unless
// the configuration names one.
func (a *App) demoModel(p config.Provider) (string, error) {
	if p.BaseURL != "" {
		return p.BaseURL, nil
	}
	base, err := a.local.serve(demo.New(demo.Options{}))
	return base + "/v1", err
}
