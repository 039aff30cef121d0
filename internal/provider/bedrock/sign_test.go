package bedrock

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

func ask(p *Provider, name string) error {
	_, err := p.Stream(context.Background(), &model.Request{Model: name, Items: []item.Item{item.NewText(item.User, "hi")}}, func(model.Delta) error { return nil })
	return err
}

// Names with characters that paths escape are signed as they are sent. // M04
func TestNamesAreEscapedInThePathAndInTheSignature(t *testing.T) {
	for name, escaped := range map[string]string{
		"amazon.nova-pro-v1:0": "amazon.nova-pro-v1%3A0",
		"arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-3-7-sonnet-20250219-v1:0": "arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Fus.anthropic.claude-3-7-sonnet-20250219-v1%3A0",
		"a b+c%2Fd~é": "a%20b%2Bc%252Fd~%C3%A9",
		"../admin":    "..%2Fadmin",
		"..":          "%2E%2E", // otherwise a proxy takes it for a step in the path
		".":           "%2E",
	} {
		u := upstreamtest.New(turnpiketest.NewScript(t, "text a"), upstreamtest.Options{Strict: true})
		t.Cleanup(u.Close)
		var path string
		see := roundTripper(func(r *http.Request) (*http.Response, error) {
			path = r.URL.EscapedPath()
			return u.Transport().RoundTrip(r)
		})
		if err := ask(New(wire.Endpoint{BaseURL: u.URL, Transport: see}, signed()), name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if path != "/v1/model/"+escaped+"/converse-stream" {
			t.Errorf("%s is sent as %s", name, path)
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Wrong credentials are an error of the gateway's own, which a retry does not repair. The
// session token, which AWS repeats in the error, reaches nobody.
func TestWrongCredentials(t *testing.T) { // M04
	right := [3]string{upstreamtest.AWSAccessKeyID, upstreamtest.AWSSecretAccessKey, upstreamtest.AWSSessionToken}
	for name, tt := range map[string]struct {
		id, secret, token, region, code string
	}{
		"secret": {right[0], "another secret", right[2], "us-east-1", "InvalidSignatureException"},
		"key id": {"AKIDOTHER", right[1], right[2], "us-east-1", "UnrecognizedClientException"},
		"token":  {right[0], right[1], "another token", "us-east-1", "UnrecognizedClientException"},
		"region": {right[0], right[1], right[2], "us-west-2", "InvalidSignatureException"},
	} {
		u := upstreamtest.New(turnpiketest.NewScript(t, "text a"), upstreamtest.Options{Strict: true})
		t.Cleanup(u.Close)
		err := ask(New(wire.Endpoint{BaseURL: u.URL, Transport: u.Transport()}, Options{Region: tt.region, Credentials: Static(tt.id, tt.secret, tt.token)}), "m")
		var got *model.Error
		if !errors.As(err, &got) || got.Status != 403 || got.Class != model.Target || !got.Credential || got.Code != tt.code {
			t.Errorf("a wrong %s: %+v", name, err)
		}
		if got != nil && (strings.Contains(got.Message+string(got.Body), tt.token) || strings.Contains(got.Message+string(got.Body), tt.secret)) {
			t.Errorf("a wrong %s: %s", name, got.Body)
		}
		if name == "secret" && !strings.Contains(got.Message, "x-amz-security-token:[the gateway's key]") {
			t.Errorf("a wrong %s: %s", name, got.Message)
		}
	}
}

// What somebody changes on the way is refused: the signature covers it.
func TestAChangedRequestIsRefused(t *testing.T) { // M04
	for name, change := range map[string]func(*http.Request){
		"body":         func(r *http.Request) { r.Body = readCloser(`{"messages":[]}`); r.ContentLength = 15 },
		"path":         func(r *http.Request) { u := *r.URL; u.Path, u.RawPath = "/v1/model/n/converse-stream", ""; r.URL = &u },
		"content type": func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
		"date":         func(r *http.Request) { r.Header.Set("X-Amz-Date", "20200101T000000Z") },
		"extra header": func(r *http.Request) { r.Header.Set("X-Amz-Target", "x") },
		"query":        func(r *http.Request) { u := *r.URL; u.RawQuery = "a=b"; r.URL = &u },
	} {
		u := upstreamtest.New(turnpiketest.NewScript(t, "text a"), upstreamtest.Options{Strict: true})
		t.Cleanup(u.Close)
		meddle := roundTripper(func(r *http.Request) (*http.Response, error) {
			change(r)
			return u.Transport().RoundTrip(r)
		})
		var got *model.Error
		if err := ask(New(wire.Endpoint{BaseURL: u.URL, Transport: meddle}, signed()), "m"); !errors.As(err, &got) || got.Status != 403 {
			t.Errorf("another %s: %v", name, err)
		}
	}
	u := upstreamtest.New(turnpiketest.NewScript(t, "text a"), upstreamtest.Options{Strict: true})
	t.Cleanup(u.Close)
	harmless := roundTripper(func(r *http.Request) (*http.Response, error) { // as proxies and traces do
		r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		r.Header.Set("Accept", "*/*")
		return u.Transport().RoundTrip(r)
	})
	if err := ask(New(wire.Endpoint{BaseURL: u.URL, Transport: harmless}, signed()), "m"); err != nil {
		t.Error(err)
	}
}

func readCloser(s string) *closer { return &closer{strings.NewReader(s)} }

type closer struct{ *strings.Reader }

func (*closer) Close() error { return nil }

// A Bedrock API key replaces the signature.
func TestAPIKeys(t *testing.T) { // M04
	for key, status := range map[string]int{upstreamtest.BedrockAPIKey: 0, "another key": 403} {
		u := upstreamtest.New(turnpiketest.NewScript(t, "text a"), upstreamtest.Options{Strict: true})
		t.Cleanup(u.Close)
		err := ask(New(wire.Endpoint{BaseURL: u.URL, Transport: u.Transport(), APIKey: func(context.Context) (string, error) { return key, nil }}, Options{}), "m")
		var got *model.Error
		if errors.As(err, &got); status == 0 && err != nil || status != 0 && (got == nil || got.Status != status) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// Without credentials no request is made, and another provider may serve the model.
func TestMissingCredentials(t *testing.T) {
	calls := 0
	counting := roundTripper(func(*http.Request) (*http.Response, error) { calls++; return nil, errors.New("no") })
	missing := func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{}, errors.New("no AWS credentials were found")
	}
	var got *model.Error
	err := ask(New(wire.Endpoint{BaseURL: "http://127.0.0.1:1", Transport: counting}, Options{Region: "r", Credentials: missing}), "m")
	if !errors.As(err, &got) || got.Class != model.Target || !strings.Contains(err.Error(), "no AWS credentials were found") || calls != 0 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// A model that does not stream, or not with tools, is asked for a whole answer.
func TestModelsThatDoNotStream(t *testing.T) {
	for _, message := range []string{"This model doesn't support tool use in streaming mode.", "The model is unsupported for streaming."} {
		var paths []string
		e := providertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			paths = append(paths, r.URL.Path)
			if strings.HasSuffix(r.URL.Path, "-stream") {
				w.Header().Set("X-Amzn-Errortype", "ValidationException:http://x/")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = w.Write([]byte(`{"message":"` + message + `"}`))
				return
			}
			_, _ = w.Write([]byte(`{"output":{"message":{"role":"assistant","content":[{"text":"Hello."}]}},"stopReason":"end_turn","usage":{"inputTokens":1,"outputTokens":2,"totalTokens":3}}`))
		})
		var h providertest.Heard
		turn, err := New(e, signed()).Stream(t.Context(), &model.Request{Model: "meta.llama3-3-70b-instruct-v1:0"}, h.Emit)
		if err != nil || turn.Text() != "Hello." || h.Text != "Hello." || turn.Usage.Total != 3 || len(paths) != 2 || !strings.HasSuffix(paths[1], "/converse") {
			t.Errorf("%+v, %v after %v", turn, err, paths)
		}
	}
}

// Reasoning that the provider refuses because the prompt before it has changed is left
// out of a second request.
func TestOutdatedReasoning(t *testing.T) { // P08
	var bodies []string
	e := providertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
		var b strings.Builder
		_ = r.Write(&b)
		bodies = append(bodies, b.String())
		if len(bodies) == 1 {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write([]byte(`{"message":"The model returned the following errors: messages.1.content.0: this block is bound to a different conversation"}`))
			return
		}
		_, _ = w.Write([]byte(`{"output":{"message":{"content":[{"text":"Hello."}]}},"stopReason":"end_turn"}`))
	})
	req := &model.Request{Model: "us.anthropic.claude-opus-5-5-v1:0", Items: []item.Item{
		item.NewText(item.User, "hi"),
		{Kind: item.Reasoning, Turn: 1, Native: nativeOf([]byte(`{"reasoningContent":{"reasoningText":{"text":"t","signature":"SIGNED"}}}`))},
		{Kind: item.ToolCall, Turn: 1, CallID: "c", Name: "f", Arguments: "{}"}, item.NewResult("c", "x", false),
	}}
	if turn, err := New(e, signed()).Stream(t.Context(), req, func(model.Delta) error { return nil }); err != nil || turn.Text() != "Hello." {
		t.Fatal(turn, err)
	}
	if len(bodies) != 2 || !strings.Contains(bodies[0], "SIGNED") || strings.Contains(bodies[1], "SIGNED") || !strings.Contains(bodies[1], `"toolUse"`) {
		t.Errorf("%q", bodies)
	}
}

// Errors that say the model cannot serve the request are for another provider.
func TestErrorsAboutTheModel(t *testing.T) {
	for name, tt := range map[string]struct {
		status        int
		kind, message string
		class         model.ErrorClass
	}{
		"unknown model":       {400, "ValidationException", "The provided model identifier is invalid.", model.Target},
		"only by a profile":   {400, "ValidationException", "Invocation of model ID m with on-demand throughput isn’t supported.", model.Target},
		"no tools":            {400, "ValidationException", "This model doesn't support tool use.", model.Target},
		"quota":               {400, "ServiceQuotaExceededException", "Too many tokens per day", model.Target},
		"no access":           {403, "AccessDeniedException", "You don't have access to the model", model.Target},
		"expired":             {403, "ExpiredTokenException", "The security token included in the request is expired", model.Target},
		"throttled":           {429, "ThrottlingException", "Too many requests", model.Transient},
		"the model is down":   {503, "ServiceUnavailableException", "x", model.Transient},
		"the model failed":    {424, "ModelErrorException", "x", model.Transient},
		"it takes too long":   {408, "ModelTimeoutException", "x", model.Transient},
		"a mistake":           {400, "ValidationException", "1 validation error detected", model.Invalid},
		"without a type":      {400, "", "1 validation error detected", model.Invalid},
		"context is too long": {400, "ValidationException", "The model returned the following errors: prompt is too long: 200001 tokens > 200000 maximum", model.TooLong},
	} {
		header := map[string]string{"X-Amzn-Errortype": tt.kind + ":http://internal.amazon.com/coral/", "X-Amzn-Requestid": "r1"}
		var got *model.Error
		err := ask(New(providertest.Serve(t, providertest.Answer(tt.status, header, `{"message":"`+tt.message+`"}`)), signed()), "m")
		if !errors.As(err, &got) || got.Class != tt.class || got.Code != tt.kind || got.Message != tt.message || got.Header["X-Amzn-Requestid"][0] != "r1" {
			t.Errorf("%s: %+v", name, err)
		}
		if got != nil && got.Credential != (name == "expired") {
			t.Errorf("%s: credential %t", name, got.Credential)
		}
	}
}
