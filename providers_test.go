package turnpike_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/provider/anthropic"
	"github.com/turnpike-gateway/turnpike/provider/bedrock"
	"github.com/turnpike-gateway/turnpike/provider/gemini"
	"github.com/turnpike-gateway/turnpike/provider/openai"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// counted is a transport that counts its requests.
type counted struct {
	http.RoundTripper
	n    int
	auth []string
}

func (c *counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n++
	for _, name := range []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key"} {
		if v := r.Header.Get(name); v != "" {
			c.auth = append(c.auth, v)
		}
	}
	return c.RoundTripper.RoundTrip(r)
}

// An agent with each provider, over HTTP.
func TestProviders(t *testing.T) {
	for name, newModel := range map[string]func(base string, c *http.Client) model.Model{
		"openai": func(base string, c *http.Client) model.Model {
			return openai.Model("gpt-5.4", openai.Options{APIKey: "k", BaseURL: base, HTTPClient: c})
		},
		"openai responses": func(base string, c *http.Client) model.Model {
			return openai.Responses("gpt-5.4", openai.Options{APIKey: "k", BaseURL: base, HTTPClient: c})
		},
		"anthropic": func(base string, c *http.Client) model.Model {
			return anthropic.Model("claude-sonnet-5", anthropic.Options{APIKey: "k", BaseURL: base, HTTPClient: c, MaxTokens: 100})
		},
		"gemini": func(base string, c *http.Client) model.Model {
			return gemini.Model("gemini-3-flash", gemini.Options{APIKey: "k", BaseURL: base, HTTPClient: c})
		},
		"bedrock": func(base string, c *http.Client) model.Model {
			return bedrock.Model("anthropic.claude-sonnet-5", bedrock.Options{Region: "us-east-1", APIKey: "k", BaseURL: base, HTTPClient: c})
		},
	} {
		for _, own := range []bool{false, true} {
			upstream := turnpiketest.NewUpstream(turnpiketest.NewScript(t, story), turnpiketest.UpstreamOptions{})
			var client *http.Client
			transport := &counted{RoundTripper: upstream.Transport()}
			if own {
				client = &http.Client{Transport: transport, Timeout: time.Minute}
			}
			a := &turnpike.Agent{Model: newModel(upstream.URL, client), Tools: []tool.Tool{weather()}, Limits: turnpike.Limits{USD: turnpike.USD("1")}, Rates: map[string]turnpike.Rate{
				"anthropic.claude-sonnet-5": {Input: turnpike.USD("3"), Output: turnpike.USD("15")}, "claude-sonnet-5": {}, "gemini-3-flash": {},
			}}
			r, err := a.Run(t.Context(), turnpike.Text("Is it warm in Bern?"))
			if err != nil || r.Text != "It is sunny." || r.Rounds != 2 || r.Usage.Input != 30 || r.Cost.IsZero() {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
			if own && (transport.n != 2 || len(transport.auth) != 2) {
				t.Errorf("%s: %d requests over the client, %q", name, transport.n, transport.auth)
			}
			if c, ok := a.Model.(interface{ CloseIdleConnections() }); ok {
				c.CloseIdleConnections()
			}
			upstream.Close()
		}
	}
}
