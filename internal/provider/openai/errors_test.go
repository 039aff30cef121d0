package openai

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/relay"
	"github.com/turnpike-gateway/turnpike/model"
)

func TestErrorAnswers(t *testing.T) {
	long := `{"error":{"message":"This model's maximum context length is 10 tokens.","type":"invalid_request_error","code":"context_length_exceeded"}}`
	for _, tt := range []struct {
		name    string
		status  int
		body    string
		class   model.ErrorClass
		message string
	}{
		{"a bad request", 400, `{"error":{"message":"no","type":"invalid_request_error"}}`, model.Invalid, "no"},
		{"an unprocessable one", 422, `{"detail":[{"loc":["body"],"msg":"field required"},{"msg":"x"}]}`, model.Invalid, "field required; x"},
		{"one that is too large", 413, `{"detail":"too large"}`, model.Invalid, "too large"},
		{"a context that does not fit", 400, long, model.TooLong, "This model's maximum context length is 10 tokens."},
		{"the same in llama.cpp's words", 400, `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}`, model.TooLong, "the request exceeds the available context size"},
		{"the same in vLLM's words", 400, `{"object":"error","message":"This model's maximum context length is 8 tokens","type":"BadRequestError","code":400}`, model.TooLong, "This model's maximum context length is 8 tokens"},
		{"the same in Copilot's words", 400, `{"error":{"message":"m","code":"model_max_prompt_tokens_exceeded"}}`, model.TooLong, "m"},
		{"the same in TGI's words", 422, "{\"error\":\"`inputs` must have less than 8 tokens\",\"error_type\":\"validation\"}",
			model.TooLong, "`inputs` must have less than 8 tokens"},
		{"no credentials", 401, `{"error":"who?"}`, model.Target, "who?"},
		{"no money", 402, `{"message":"pay"}`, model.Target, "pay"},
		{"forbidden", 403, ``, model.Target, ""},
		{"an unknown model", 404, `{"error":{"message":"m","code":"model_not_found"}}`, model.Target, "m"},
		{"a bad key as bad request", 400, `{"error":"Incorrect API key provided: x"}`, model.Target, "Incorrect API key provided: x"},
		{"a bad key in a list", 400, `[{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}]`, model.Target, "API key not valid."},
		{"a redirect", 302, `<html>`, model.Target, "a redirect to \"http://elsewhere/\"; redirects are not followed. Is base_url right?"},
		{"a time-out", 408, ``, model.Transient, ""},
		{"a conflict", 409, ``, model.Transient, ""},
		{"a rate limit", 429, `{"error":{"message":"slow","code":"rate_limit_exceeded"}}`, model.Transient, "slow"},
		{"a used-up quota", 429, `{"error":{"message":"q","type":"insufficient_quota","code":"insufficient_quota"}}`, model.Target, "q"},
		{"a rate limit that speaks of tokens", 429, `{"error":{"message":"maximum context length"}}`, model.Transient, "maximum context length"},
		{"a broken server", 500, `oops`, model.Transient, "oops"},
		{"a gateway's page", 502, `<html>bad gateway</html>`, model.Transient, "a web page, not JSON. Is base_url right?"},
		{"overload", 529, `{"error":{"type":"overloaded_error","message":"o"}}`, model.Transient, "o"},
		{"a content filter", 400, `{"error":{"message":"f","code":"content_filter","innererror":{"code":"ResponsibleAIPolicyViolation"}}}`, model.Filtered, "f"},
		{"a call that the provider could not parse", 400, `{"error":{"message":"f","code":"tool_use_failed"}}`, model.Transient, "f"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := serve(t, providertest.Answer(tt.status, map[string]string{"Location": "http://elsewhere/"}, tt.body))
			turn, err := p.Stream(t.Context(), &model.Request{}, (&providertest.Heard{}).Emit)
			var e *model.Error
			if !errors.As(err, &e) || turn != nil {
				t.Fatal(turn, err)
			}
			if e.Class != tt.class || e.Status != tt.status || e.Message != tt.message || string(e.Body) != tt.body || (e.Dialect == model.DialectChat) != (tt.body != "") {
				t.Errorf("%+v", e)
			}
		})
	}
}

func TestErrorHeaderAndBody(t *testing.T) {
	p := serve(t, providertest.Answer(503, map[string]string{
		"Retry-After": "2", "Content-Type": "application/json", "X-Request-Id": "r", "X-Ratelimit-Remaining": "0", "Set-Cookie": "c", "Openai-Organization": "o",
	}, strings.Repeat("x", 100<<10)))
	_, err := p.Stream(t.Context(), &model.Request{}, (&providertest.Heard{}).Emit)
	var e *model.Error
	if !errors.As(err, &e) || len(e.Body) != 64<<10 || e.RetryAfter != 2*time.Second {
		t.Fatal(err)
	}
	want := map[string][]string{"Retry-After": {"2"}, "Content-Type": {"application/json"}, "X-Request-Id": {"r"}, "X-Ratelimit-Remaining": {"0"}}
	if diff := cmp.Diff(want, e.Header); diff != "" {
		t.Error(diff)
	}
}

func TestErrorsInsideAnAnswerNameTheirClass(t *testing.T) {
	for body, want := range map[string]model.ErrorClass{
		`{"error":{"message":"m","code":429}}`:                                    model.Transient,
		`{"error":{"message":"m","code":"401"}}`:                                  model.Target,
		`{"error":{"message":"m","status_code":400}}`:                             model.Invalid,
		`{"error":{"message":"m","type":"invalid_request_error"}}`:                model.Invalid,
		`{"error":{"message":"m","type":"authentication_error"}}`:                 model.Target,
		`{"error":{"message":"m","type":"server_error"}}`:                         model.Transient,
		`{"error":{"message":"prompt is too long: 9 tokens > 8"}}`:                model.TooLong,
		`{"error":{"message":"m"}}`:                                               model.Transient,
		`{"error":{"error":{"error":{"error":{"message":"too deep"}}}}}`:          model.Transient,
		`{"choices":[{"error":{"message":"m","code":403}}]}`:                      model.Target,
		`{"error":{"message":"m","innererror":{"code":"content_filter"}}}`:        model.Filtered,
		`{"error":{"message":"m","code":"tool_use_failed","status_code":400}}`:    model.Transient,
		`{"error":{"message":"m","type":"not_found_error","code":"unknown_url"}}`: model.Target,
	} {
		if e := wire.AnswerError([]byte(body)); e.Class != want || e.Status != 200 || string(e.Body) != body {
			t.Errorf("%s: %+v, want %s", body, e, want)
		}
	}
}

// broken fails every request.
type broken struct{ err error }

func (b broken) RoundTrip(r *http.Request) (*http.Response, error) {
	_ = r.Body.Close()
	return nil, b.err
}

func TestNetworkFailuresAreTransient(t *testing.T) {
	p := New(wire.Endpoint{BaseURL: "http://p/v1", Transport: broken{io.ErrUnexpectedEOF}}, Options{})
	for name, call := range map[string]func() error{
		"stream": func() error {
			_, err := p.Stream(t.Context(), &model.Request{}, (&providertest.Heard{}).Emit)
			return err
		},
		"relay": func() error {
			_, err := p.Relay(t.Context(), &relay.Request{Path: "/chat/completions"})
			return err
		},
	} {
		var e *model.Error
		if err := call(); !errors.As(err, &e) || e.Class != model.Transient || e.Status != 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A provider may repeat the key that it refuses. Errors are logged, stored and
// shown to clients: the key is not in them.
func TestErrorsHaveNoKey(t *testing.T) {
	const key = "sk-CANARY-0123456789"
	for name, h := range map[string]http.HandlerFunc{
		"an error answer":  providertest.Answer(401, nil, `{"error":{"message":"invalid token: `+key+`","code":"x"}}`),
		"plain text":       providertest.Answer(403, nil, "no such key: "+key),
		"inside a stream":  providertest.Answer(200, nil, `data: {"error":{"message":"`+key+` is used up"}}`+"\n\n"),
		"a chunk":          providertest.Answer(200, nil, `data: {"`+key+"\n\n"),
		"inside an object": providertest.Answer(200, nil, `{"error":{"message":"`+key+` is used up"}}`),
	} {
		for _, field := range []string{"", "api-key"} {
			t.Run(name+" "+field, func(t *testing.T) {
				p := serve(t, h, func(e *wire.Endpoint) {
					e.KeyHeader, e.APIKey = field, func(context.Context) (string, error) { return key, nil }
				})
				_, err := p.Stream(t.Context(), &model.Request{}, (&providertest.Heard{}).Emit)
				var e *model.Error
				if !errors.As(err, &e) {
					t.Fatal(err)
				}
				if shown := fmt.Sprintf("%v %s %s %v", e, e.Message, e.Body, e.Header); strings.Contains(shown, key) {
					t.Error(shown)
				}
			})
		}
	}
}
