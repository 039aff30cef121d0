package anthropic

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
		h := r.Header
		got = append(got, r.URL.String()+" "+h.Get("X-Api-Key")+" "+h.Get("Anthropic-Version")+h.Get("Authorization"))
		if r.URL.Query().Get("after_id") == "" {
			_, _ = w.Write([]byte(`{"data":[{"type":"model","id":"claude-b","display_name":"B","created_at":"2026-02-04T00:00:00Z","max_input_tokens":200000},{"id":7}],"has_more":true,"first_id":"claude-b","last_id":"claude b&"}`))
			return
		}
		_, _ = w.Write([]byte(`{"data":[{"id":"claude-a","created_at":"1969-01-01T00:00:00Z"},{"id":"x","created":5}],"has_more":false,"last_id":"x"}`))
	}, func(e *wire.Endpoint) {
		e.BaseURL += "/?beta=1"
		e.APIKey = func(context.Context) (string, error) { return "sk-ant", nil }
	})
	memory := memlimit.New(memlimit.Options{}).Open("")
	all, err := listed(t.Context(), p, memory.Share())
	if diff := cmp.Diff([]model.Listed{{Name: "claude-b", Created: 1770163200, ContextWindow: 200_000}, {Name: "claude-a"}, {Name: "x", Created: 5}}, all); diff != "" || err != nil {
		t.Error(err, diff)
	}
	want := []string{"/v1/models?beta=1&limit=1000 sk-ant 2023-06-01", "/v1/models?beta=1&after_id=claude+b%26&limit=1000 sk-ant 2023-06-01"}
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
		_, _ = w.Write([]byte(`{"data":[{"id":"a"},{"id":"b"}],"has_more":true,"last_id":"b"}`))
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
		{"the wrong key", 401, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`, model.Target, "invalid x-api-key"},
		{"no such path", 404, `{"error":{"message":"no"}}`, model.Target, "no"},
		{"an error with status 200", 200, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, model.Transient, "Overloaded"},
		{"a page of the web", 200, `<html>`, model.Target, "answered with text/html, not JSON. Is base_url right?"},
		{"another object", 200, `{"models":[]}`, model.Transient, "sent an answer without a list of models"},
		{"a bare array", 200, `[]`, model.Transient, "sent an answer without a list of models"},
		{"a cut page", 200, `{"data":[{"id":"a"}`, model.Transient, `sent an answer that is not valid JSON: "{\"data\":[{\"id\":\"a\"}"`},
		{"the same page again", 200, `{"data":[{"id":"a"}],"has_more":true,"last_id":"a"}`, model.Transient, "repeats a page of its list of models"},
		{"no end of pages", 200, `{"data":[],"has_more":true,"last_id":"p%d"}`, model.Transient, "lists its models on more than 20 pages"},
		{"too large", 200, `{"data":[` + strings.Repeat(" ", 4<<20) + `]}`, model.Transient, "sent an answer of more than 4194304 bytes"},
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
