package gemini

import (
	"context"
	"errors"
	"fmt"
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

func TestAListOfModelsHasAllPages(t *testing.T) {
	var got []string
	p := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.URL.String()+" "+r.Header.Get("X-Goog-Api-Key")+r.Header.Get("Authorization"))
		if r.URL.Query().Get("pageToken") == "" {
			_, _ = w.Write([]byte(`{"models":[{"name":"models/gemini-b","inputTokenLimit":1048576,"supportedGenerationMethods":["generateContent","countTokens"]},{"name":"models/embed","supportedGenerationMethods":["embedContent"]},{"name":7}],"nextPageToken":"next &"}`))
			return
		}
		_, _ = w.Write([]byte(`{"models":[{"name":"tunedModels/a"},{"name":"models/x","supportedGenerationMethods":["generateContent"]}]}`))
	}, func(e *wire.Endpoint) {
		e.BaseURL += "beta/?x=1"
		e.APIKey = func(context.Context) (string, error) { return "AIza-key", nil }
	})
	memory := memlimit.New(memlimit.Options{}).Open("")
	all, err := listed(t.Context(), p, memory.Share())
	if diff := cmp.Diff([]model.Listed{{Name: "gemini-b", ContextWindow: 1_048_576}, {Name: "tunedModels/a"}, {Name: "x"}}, all); diff != "" || err != nil {
		t.Error(err, diff)
	}
	want := []string{"/v1beta/models?x=1&pageSize=1000 AIza-key", "/v1beta/models?x=1&pageSize=1000&pageToken=next+%26 AIza-key"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if memory.Used() != 0 {
		t.Errorf("%d bytes stay charged", memory.Used())
	}
}

func TestAListOfModelsEndsWhenTheCallerHasEnough(t *testing.T) {
	asked := 0
	p := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = w.Write([]byte(`{"models":[{"name":"models/a"},{"name":"models/b"}],"nextPageToken":"b"}`))
	})
	n := 0
	err := p.List(t.Context(), nil, func(model.Listed) bool { n++; return false })
	if err != nil || n != 1 || asked != 1 {
		t.Errorf("%v; %d models, %d requests", err, n, asked)
	}
}

// P40
func TestListsOfModelsThatFail(t *testing.T) {
	for _, tt := range []struct {
		name    string
		status  int
		body    string // with the number of the request, if it has a verb
		class   model.Class
		message string
	}{
		{"the wrong key", 400, `{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}`, model.Target, "API key not valid."},
		{"no such path", 404, `{"error":{"message":"no"}}`, model.Target, "no"},
		{"an error with status 200", 200, `{"error":{"code":503,"message":"Overloaded","status":"UNAVAILABLE"}}`, model.Transient, "Overloaded"},
		{"a page of the web", 200, `<html>`, model.Target, "answered with text/html, not JSON. Is base_url right?"},
		{"another object", 200, `{"data":[]}`, model.Transient, "sent an answer without a list of models"},
		{"a bare array", 200, `[]`, model.Transient, "sent an answer without a list of models"},
		{"a cut page", 200, `{"models":[{"name":"a"}`, model.Transient, `sent an answer that is not valid JSON: "{\"models\":[{\"name\":\"a\"}"`},
		{"the same page again", 200, `{"models":[{"name":"a"}],"nextPageToken":"a"}`, model.Transient, "repeats a page of its list of models"},
		{"no end of pages", 200, `{"models":[],"nextPageToken":"p%d"}`, model.Transient, "lists its models on more than 20 pages"},
		{"too large", 200, `{"models":[` + strings.Repeat(" ", 4<<20) + `]}`, model.Transient, "sent an answer of more than 4194304 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := 0
			p := serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked++
				body := tt.body
				if strings.Contains(body, "%d") {
					body = fmt.Sprintf(body, asked)
				}
				providertest.Answer(tt.status, nil, body)(w, r)
			})
			memory := memlimit.New(memlimit.Options{}).Open("")
			_, err := listed(t.Context(), p, memory.Share())
			var e *model.Error
			if !errors.As(err, &e) || e.Class != tt.class || e.Message != tt.message {
				t.Errorf("%#v", err)
			}
			if memory.Used() != 0 || asked > 20 {
				t.Errorf("%d bytes stay charged after %d requests", memory.Used(), asked)
			}
		})
	}
}

func TestAListOfModelsThatStallsEndsWithItsContext(t *testing.T) {
	p := serve(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var e *model.Error
	if _, err := listed(ctx, p, nil); !errors.As(err, &e) || e.Class != model.Gone {
		t.Error(err)
	}
}
