package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/provider/anthropic"
	"github.com/turnpike-gateway/turnpike/internal/provider/bedrock"
	"github.com/turnpike-gateway/turnpike/internal/provider/demo"
	"github.com/turnpike-gateway/turnpike/internal/provider/gemini"
	"github.com/turnpike-gateway/turnpike/internal/provider/openai"
	"github.com/turnpike-gateway/turnpike/internal/provider/openairesponses"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// adapters makes the adapters of providers.
type adapters struct {
	out     *egress.Egress
	local   demo.Servers
	demoURL string // of the demo model; "" = it does not run
	log     *slog.Logger
}

// build makes the adapters, in configuration order.
func (a *adapters) build(s *settings) ([]route.Provider, error) {
	var out []route.Provider
	for _, p := range s.config.Providers {
		key := s.keys.Providers[p.Name]
		built := route.Provider{Name: p.Name, Models: p.Models, Windows: s.config.Windows(p.Name)}
		for _, name := range p.RelayHeaders {
			built.RelayHeaders = append(built.RelayHeaders, http.CanonicalHeaderKey(name))
		}
		switch p.Kind {
		case "openai":
			built.Model = openai.New(a.endpoint(p, p.BaseURL, key), openai.Options{})
		case "openai-responses":
			built.Model = openairesponses.New(a.endpoint(p, p.BaseURL, key))
		case "anthropic":
			built.Model = a.anthropic(p, key)
		case "gemini":
			built.Model = gemini.New(a.endpoint(p, withAPIVersion(p), key), gemini.Options{Fetch: a.fetch})
		case "bedrock":
			built.Model = a.bedrock(p, key, s.keys.AWS[p.Name])
		case "demo":
			base, err := a.demoModel(p)
			if err != nil {
				return nil, err
			}
			built.Model = openai.New(a.endpoint(p, base, key), openai.Options{ToolHints: true, ChatOnly: true})
		default:
			return nil, fmt.Errorf("provider %s: the kind %q is not supported", p.Name, p.Kind)
		}
		out = append(out, built)
	}
	return out, nil
}

func (a *adapters) anthropic(p config.Provider, key secret.Value) *anthropic.Provider {
	o := anthropic.Options{Fetch: a.fetch}
	if p.DefaultMaxTokens != nil {
		o.MaxTokens = *p.DefaultMaxTokens
	}
	return anthropic.New(a.endpoint(p, withVersion(p.BaseURL), key), o)
}

// awsTimeout bounds one request of the AWS credential chain. An address of a role that
// is not there must not hold up a request for longer.
const awsTimeout = 4 * time.Second

// bedrock builds the adapter of Bedrock. The API key of the provider, or else its keys,
// or else the AWS credential chain, which nothing reads before the first request.
func (a *adapters) bedrock(p config.Provider, key secret.Value, keys config.AWS) *bedrock.Provider {
	o := bedrock.Options{Region: p.Region, Fetch: a.fetch}
	switch {
	case !key.IsZero():
	case !keys.AccessKeyID.IsZero():
		o.Credentials = bedrock.Static(keys.AccessKeyID.Reveal(), keys.SecretAccessKey.Reveal(), keys.SessionToken.Reveal())
	default:
		o.Credentials = bedrock.Chain(p.Region, a.out.OperatorClient(awsTimeout), "access_key_id and secret_access_key of the provider")
	}
	return bedrock.New(a.endpoint(p, p.BaseURL, key), o)
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

// geminiVersion is the version of the Gemini API that requests use by default. v1 has
// fewer features.
const geminiVersion = "v1beta"

// withAPIVersion returns the base URL of a Gemini provider with the version of the API,
// which people write or leave out.
func withAPIVersion(p config.Provider) string {
	version := p.APIVersion
	if version == "" {
		version = geminiVersion
	}
	u, err := url.Parse(p.BaseURL)
	if err != nil || strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/"+version) {
		return p.BaseURL
	}
	return u.JoinPath(version).String()
}

// endpoint returns how the adapter of a provider calls it.
func (a *adapters) endpoint(p config.Provider, baseURL string, key secret.Value) wire.Endpoint {
	return wire.Endpoint{
		BaseURL:   baseURL,
		APIKey:    func(context.Context) (string, error) { return key.Reveal(), nil },
		KeyHeader: p.APIKeyHeader,
		Transport: a.out.Providers(),
		Log:       a.log.With("provider", p.Name),
	}
}

// demoModel returns where the demo model answers: a server of our own unless
// the configuration names one.
func (a *adapters) demoModel(p config.Provider) (string, error) {
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
