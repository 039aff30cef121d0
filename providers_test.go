package turnpike_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
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
			upstream := upstreamtest.New(turnpiketest.NewScript(t, story), upstreamtest.Options{})
			var client *http.Client
			transport := &counted{RoundTripper: upstream.Transport()}
			if own {
				client = &http.Client{Transport: transport, Timeout: time.Minute}
			}
			a := &turnpike.Agent{
				Model:  newModel(upstream.URL, client),
				Tools:  []tool.Tool{weather()},
				Limits: turnpike.Limits{USD: turnpike.USD("1")},
				Rates: map[string]turnpike.Rate{
					"anthropic.claude-sonnet-5": {
						Input:  turnpike.USD("3"),
						Output: turnpike.USD("15"),
					},
					"claude-sonnet-5": {},
					"gemini-3-flash":  {},
				},
			}
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

// Options that cannot work are refused before the first call, with the field that is wrong.
func TestWrongOptionsOfModels(t *testing.T) {
	for want, m := range map[string]model.Model{
		"openai.Options.BaseURL":            openai.Model("m", openai.Options{BaseURL: "api.example.com/v1"}),
		"openai.Options.BaseURL is":         openai.Responses("m", openai.Options{BaseURL: "ftp://example.com"}),
		"anthropic.Options.BaseURL":         anthropic.Model("m", anthropic.Options{BaseURL: "https://"}),
		"anthropic.Options.MaxTokens is -1": anthropic.Model("m", anthropic.Options{MaxTokens: -1}),
		"gemini.Options.BaseURL":            gemini.Model("m", gemini.Options{BaseURL: "://"}),
		"the name of the model is empty":    gemini.Model("", gemini.Options{}),
		"bedrock.Options.Region is empty":   bedrock.Model("m", bedrock.Options{APIKey: "k"}),
		"bedrock.Options.Region is not":     bedrock.Model("m", bedrock.Options{APIKey: "k", Region: "us east 1"}),
		"bedrock.Options.BaseURL":           bedrock.Model("m", bedrock.Options{APIKey: "k", Region: "us-east-1", BaseURL: "/v1"}),
		"SecretAccessKey":                   bedrock.Model("m", bedrock.Options{Region: "us-east-1", AccessKeyID: "a"}),
	} {
		var wrong *turnpike.ValidationError
		_, err := (&turnpike.Agent{Model: m}).Run(t.Context(), turnpike.Text("go"))
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// The header of the options goes with each request, and replaces nothing that the provider needs.
func TestTheHeaderOfOptions(t *testing.T) {
	header := http.Header{"Openai-Organization": {"acme"}, "x-proxy": {"a", "b"}, "Content-Type": {"text/plain"}, "Authorization": {"Basic x"}}
	for name, newModel := range map[string]func(c *http.Client) model.Model{
		"openai": func(c *http.Client) model.Model {
			return openai.Model("m", openai.Options{APIKey: "k", HTTPClient: c, Header: header})
		},
		"openai responses": func(c *http.Client) model.Model {
			return openai.Responses("m", openai.Options{APIKey: "k", HTTPClient: c, Header: header})
		},
		"anthropic": func(c *http.Client) model.Model {
			return anthropic.Model("m", anthropic.Options{APIKey: "k", HTTPClient: c, Header: header})
		},
		"gemini": func(c *http.Client) model.Model {
			return gemini.Model("m", gemini.Options{APIKey: "k", HTTPClient: c, Header: header})
		},
		"bedrock": func(c *http.Client) model.Model {
			return bedrock.Model("m", bedrock.Options{Region: "us-east-1", AccessKeyID: "a", SecretAccessKey: "s", HTTPClient: c, Header: header})
		},
	} {
		var sent http.Header
		client := &http.Client{Transport: requests(func(r *http.Request) { sent = r.Header.Clone() })}
		_, err := turnpike.Generate(t.Context(), newModel(client), turnpike.Text("go"))
		if err == nil || sent.Get("Openai-Organization") != "acme" || strings.Join(sent.Values("X-Proxy"), " ") != "a b" ||
			sent.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v, %v", name, sent, err)
		}
		if keyed := name == "anthropic" || name == "gemini"; (sent.Get("Authorization") == "Basic x") != keyed {
			t.Errorf("%s: %v", name, sent)
		}
	}
}

// requests is a transport that shows requests, and answers none.
type requests func(*http.Request)

func (r requests) RoundTrip(req *http.Request) (*http.Response, error) {
	r(req)
	return nil, errors.New("down")
}

// answers is a transport that gives one answer.
type answers func() (*http.Response, error)

func (a answers) RoundTrip(*http.Request) (*http.Response, error) { return a() }

// The chain of a failed model call ends at its cause, and its text names fields of Go.
func TestAFailedModelCallHasItsCause(t *testing.T) {
	refused := errors.New("connection refused")
	down := answers(func() (*http.Response, error) { return nil, &net.OpError{Op: "dial", Net: "tcp", Err: refused} })
	locked := answers(func() (*http.Response, error) {
		body := io.NopCloser(strings.NewReader(`{"error":{"message":"bad key"}}`))
		return &http.Response{StatusCode: 401, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}, nil
	})
	for name, newModel := range map[string]func(c *http.Client) model.Model{
		"openai": func(c *http.Client) model.Model {
			return openai.Model("gpt-5.4", openai.Options{APIKey: "k", HTTPClient: c})
		},
		"anthropic": func(c *http.Client) model.Model {
			return anthropic.Model("claude-sonnet-5", anthropic.Options{APIKey: "k", HTTPClient: c})
		},
		"gemini": func(c *http.Client) model.Model {
			return gemini.Model("gemini-3-flash", gemini.Options{APIKey: "k", HTTPClient: c})
		},
		"bedrock": func(c *http.Client) model.Model {
			return bedrock.Model("m", bedrock.Options{Region: "us-east-1", APIKey: "k", HTTPClient: c})
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			var failed *turnpike.ModelError
			_, err := (&turnpike.Agent{Model: newModel(&http.Client{Transport: down})}).Run(t.Context(), turnpike.Text("go"))
			if !errors.As(err, &failed) || !errors.As(err, new(*net.OpError)) || !errors.Is(err, refused) ||
				!strings.Contains(err.Error(), "BaseURL in "+name+".Options") {
				t.Errorf("%s: %#v: %v", name, err, err)
			}
			_, err = (&turnpike.Agent{Model: newModel(&http.Client{Transport: locked})}).Run(t.Context(), turnpike.Text("go"))
			if !errors.As(err, &failed) || failed.Cause == nil || failed.Cause.Status != 401 ||
				!strings.Contains(err.Error(), name+".Options") ||
				strings.Contains(err.Error(), "api_key") {
				t.Errorf("%s: %#v: %v", name, err, err)
			}
		})
	}
}

func TestBedrockWithoutCredentials(t *testing.T) {
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("HOME", t.TempDir())
	_, err := (&turnpike.Agent{Model: bedrock.Model("m", bedrock.Options{Region: "us-east-1"})}).Run(t.Context(), turnpike.Text("go"))
	var failed *turnpike.ModelError
	want := "no AWS credentials were found: set AccessKeyID and SecretAccessKey in bedrock.Options"
	if !errors.As(err, &failed) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// A test of a program can make an error with a result.
func TestAnErrorWithAResult(t *testing.T) {
	var err error = &turnpike.LimitError{Kind: turnpike.CostLimit, Partial: turnpike.Partial{Run: &turnpike.Result{Text: "so far"}}}
	var failure turnpike.Failure
	if !errors.As(err, &failure) || failure.Result().Text != "so far" {
		t.Error(err)
	}
}
