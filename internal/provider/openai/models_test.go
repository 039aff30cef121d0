package openai

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

// listed returns what the provider lists.
func listed(ctx context.Context, p *Provider, memory *memlimit.Share) (all []model.Listed, err error) {
	err = p.List(ctx, memory, func(m model.Listed) bool {
		all = append(all, m)
		return true
	})
	return all, err
}

func TestListsOfModels(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		want       []model.Listed
	}{
		{"OpenAI's", `{"object":"list","data":[{"id":"gpt-5","object":"model","created":1700000000,"owned_by":"openai"},{"id":"o3","created":1}]}`,
			[]model.Listed{{Name: "gpt-5", Created: 1700000000}, {Name: "o3", Created: 1}}},
		{"a bare array", ` [{"id":"meta/llama"}]`, []model.Listed{{Name: "meta/llama"}}},
		{"with a byte order mark", "\ufeff{\"data\":[{\"id\":\"a\"}]}\n", []model.Listed{{Name: "a"}}},
		{"empty", `{"data":[]}`, nil},
		{"null, where a server has no models", `{"object":"list","data":null}`, nil},
		{"an error that is null", `{"error":null,"data":[{"id":"a"}]}`, []model.Listed{{Name: "a"}}},
		{"elements that are no models", `{"data":[{"id":7},{"name":"x"},"y",null,[],{"id":""},{"id":"a"}]}`, []model.Listed{{Name: "a"}}},
		{"times that are none", `{"data":[{"id":"a","created":-1},{"id":"b","created":"1"},{"id":"c","created":1.7e9},{"id":"d","created":1e300}]}`,
			[]model.Listed{{Name: "a"}, {Name: "b"}, {Name: "c", Created: 1700000000}, {Name: "d"}}},
		{"OpenRouter's and vLLM's", `{"data":[{"id":"a","context_length":200000,"supported_parameters":["seed","tools"]},{"id":"b","max_model_len":8192,"supported_parameters":[]}]}`,
			[]model.Listed{{Name: "a", ContextWindow: 200_000, Tools: new(true)}, {Name: "b", ContextWindow: 8192, Tools: new(false)}}},
		{"Mistral's and Groq's", `[{"id":"a","max_context_length":32768,"capabilities":{"function_calling":true}},{"id":"b","context_window":131072,"capabilities":{"function_calling":false}}]`,
			[]model.Listed{{Name: "a", ContextWindow: 32_768, Tools: new(true)}, {Name: "b", ContextWindow: 131_072, Tools: new(false)}}},
		{"what says nothing", `[{"id":"a","context_length":"8192","capabilities":{"function_calling":"yes"},"supported_parameters":"tools"},{"id":"b","context_length":1e300,"capabilities":[]},{"id":"c","context_length":-1}]`,
			[]model.Listed{{Name: "a"}, {Name: "b"}, {Name: "c"}}},
		{"an escaped name", `{"data":[{"id":"a\u002fb"}]}`, []model.Listed{{Name: "a/b"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := serve(t, providertest.Answer(200, nil, tt.body))
			got, err := listed(t.Context(), p, nil)
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Error(err, diff)
			}
		})
	}
}

func TestAnswersThatAreNoListOfModels(t *testing.T) {
	for _, tt := range []struct {
		name    string
		status  int
		header  map[string]string
		body    string
		class   model.Class
		message string
	}{
		{"there is no such path", 404, nil, `{"error":{"message":"no"}}`, model.Target, "no"},
		{"the wrong key", 401, nil, `{"error":{"message":"who?"}}`, model.Target, "who?"},
		{"a broken server", 500, nil, `oops`, model.Transient, "oops"},
		{"a redirect is not followed", 302, map[string]string{"Location": "http://127.0.0.1:1/"}, ``, model.Target, `a redirect to "http://127.0.0.1:1/"; redirects are not followed. Is base_url right?`},
		{"no content", 204, nil, ``, model.Target, ""},
		{"an error with status 200", 200, nil, `{"error":{"message":"no","type":"server_error"}}`, model.Transient, "no"},
		{"a web page", 200, nil, `<!doctype html>`, model.Target, "answered with text/html, not JSON. Is base_url right?"},
		{"no JSON", 200, nil, `models: a`, model.Transient, `sent an answer that is not valid JSON: "models: a"`},
		{"a cut list", 200, nil, `{"data":[{"id":"a"}`, model.Transient, `sent an answer that is not valid JSON: "{\"data\":[{\"id\":\"a\"}"`},
		{"nothing", 200, nil, ``, model.Transient, `sent an answer that is not valid JSON: ""`},
		{"another object", 200, nil, `{"models":[]}`, model.Transient, "sent an answer without a list of models"},
		{"a list that is text", 200, nil, `{"data":"a"}`, model.Transient, "sent an answer without a list of models"},
		{"compressed", 200, map[string]string{"Content-Encoding": "gzip"}, `x`, model.Target, `answered with the content encoding "gzip"`},
		{"too large", 200, nil, `{"data":[{"id":"a"}` + strings.Repeat(" ", 16<<20) + `]}`, model.Transient, "sent an answer of more than 16777216 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := serve(t, providertest.Answer(tt.status, tt.header, tt.body))
			memory := memlimit.New(memlimit.Options{}).Open("")
			got, err := listed(t.Context(), p, memory.Share())
			var e *model.Error
			if !errors.As(err, &e) || got != nil {
				t.Fatal(got, err)
			}
			if e.Class != tt.class || e.Message != tt.message {
				t.Errorf("%s: %s", e.Class, e.Message)
			}
			if memory.Used() != 0 {
				t.Errorf("%d bytes stay charged", memory.Used())
			}
		})
	}
}

func TestTheRequestForAListOfModels(t *testing.T) {
	var got *http.Request
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		_, _ = w.Write([]byte(`{"data":[]}`))
	}, func(e *wire.Endpoint) {
		e.BaseURL += "/?api-version=1"
		e.APIKey = func(context.Context) (string, error) { return "sk-1", nil }
	})
	if _, err := listed(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	if got.Method != "GET" || got.URL.String() != "/v1/models?api-version=1" || got.ContentLength != 0 {
		t.Errorf("%s %s with %d bytes", got.Method, got.URL, got.ContentLength)
	}
	if h := got.Header; h.Get("Authorization") != "Bearer sk-1" || h.Get("Accept-Encoding") != "identity" || h.Get("Content-Type") != "" {
		t.Errorf("%v", got.Header)
	}
	p = New(wire.Endpoint{BaseURL: "nowhere"}, Options{})
	if _, err := listed(t.Context(), p, nil); err == nil {
		t.Error("a base URL without a host is asked")
	}
}

// P40
func TestAListOfModelsIsChargedWhileItIsRead(t *testing.T) {
	body := `{"data":[{"id":"` + strings.Repeat("x", 1<<20) + `"},{"id":"b"}]}`
	p := serve(t, providertest.Answer(200, nil, body))
	var used int64
	memory := memlimit.New(memlimit.Options{}).Open("")
	n := 0
	err := p.List(t.Context(), memory.Share(), func(model.Listed) bool {
		used = memory.Used()
		n++
		return false
	})
	if err != nil || n != 1 || used < 1<<20 || memory.Used() != 0 {
		t.Errorf("%v; %d models, %d bytes while it is read and %d afterwards", err, n, used, memory.Used())
	}
	memory = memlimit.New(memlimit.Options{Run: 1 << 20}).Open("")
	var refused *memlimit.Refused
	if got, err := listed(t.Context(), p, memory.Share()); !errors.As(err, &refused) || got != nil || memory.Used() != 0 {
		t.Errorf("%v with %d models", err, len(got))
	}
}

func TestAListOfModelsThatStallsEndsWithItsContext(t *testing.T) {
	for name, before := range map[string]string{"before the header": "", "in the body": `{"data":[`} {
		t.Run(name, func(t *testing.T) {
			p := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if before != "" {
					_, _ = w.Write([]byte(before))
					_ = http.NewResponseController(w).Flush()
				}
				<-r.Context().Done()
			})
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			var e *model.Error
			if _, err := listed(ctx, p, nil); !errors.As(err, &e) || e.Class != model.Gone || !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
}
