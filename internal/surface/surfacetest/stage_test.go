package surfacetest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/provider/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/internal/surface/chat"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// form is how a client wants its answer.
type form bool

const (
	asJSON   form = false
	asStream form = true
)

// performance is what came of one request.
type performance struct {
	answer  *client // what the client got
	events  []timed // what the run reported
	prompts string  // what the model was asked
	facts   []loop.Fact
}

// stage is everything that a story's requests are played on.
type stage struct {
	story   *story
	script  *turnpiketest.Script
	second  *turnpiketest.Script // of the fallback; nil = there is none
	servers []catalog.Server
	journal memory.Journal
	tap     *tap
	handler *chat.Handler
	shown   int // prompts that were looked at
	before  prompt
}

// chatModel is a script as a provider of chat completions. Stories do not relay.
type chatModel struct{ *turnpiketest.Script }

// Relays implements model.Relayer.
func (chatModel) Relays(dialect string) bool { return dialect == model.DialectChat }

// Relay implements model.Relayer.
func (chatModel) Relay(context.Context, *model.RelayRequest) (*model.RelayResponse, error) {
	panic("a story was relayed")
}

// play performs the story's requests in one form.
func play(t *testing.T, s *story, f form) []performance {
	var out []performance
	s, err := parse(s.path, string(s.format())) // tools count their calls
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		st := &stage{story: s, script: turnpiketest.NewScript(t, s.get("model"))}
		if s.has("fallback model") {
			st.second = turnpiketest.NewScript(t, s.get("fallback model"))
		}
		defer st.build()()
		out = append(out, st.request(t, f, "request", "alice"))
		if s.has("second request") {
			out = append(out, st.request(t, f, "second request", s.principal))
		}
		if left := st.script.Left(); left != 0 && s.differ == "" {
			t.Errorf("%d turns of the model were not asked for", left)
		}
	})
	return out
}

// build wires the parts and returns what takes them down.
func (st *stage) build() (stop func()) {
	s := st.story
	for _, v := range s.servers {
		src := turnpiketest.NewSource(v.tools...)
		src.Fail(v.fails)
		v.Source = source{src}
		st.servers = append(st.servers, v.Server)
	}
	providers := []route.Provider{{Name: "first", Models: []string{"scripted"}, Model: chatModel{st.script}}}
	if st.second != nil {
		providers = append(providers, route.Provider{Name: "second", Models: []string{"scripted"}, Model: chatModel{st.second}})
	}
	tools := catalog.New(catalog.Options{})
	beats := sse.NewHeartbeats(0)
	beats.Start()
	ids := map[string]int{}
	st.tap = &tap{inner: run.New(run.Options{
		Catalog: tools, Journal: &st.journal, Conversations: &memory.Conversations{},
		NewID: func(prefix string) string {
			ids[prefix]++
			return fmt.Sprintf("%s%d", prefix, ids[prefix])
		},
		Jitter: func(time.Duration) time.Duration { return 0 },
	})}
	st.handler = chat.New(surface.Options{
		MaxRoundsCap: func() int { return s.cap }, Runner: st.tap, Router: route.New(providers), Heartbeats: beats, Log: slog.New(slog.DiscardHandler),
	})
	return func() {
		tools.Close()
		beats.Stop()
	}
}

// request sends one of the story's requests.
func (st *stage) request(t *testing.T, f form, name, principal string) performance {
	body, err := requestBody(st.story.get(name), f)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	if st.story.leave > 0 && name == "request" {
		defer time.AfterFunc(st.story.leave, leave).Stop()
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(body))
	st.tap.events, st.tap.begin = nil, time.Now()
	c := &client{header: http.Header{}, room: st.story.unplug}
	c.left = func() bool { return ctx.Err() != nil }
	if err := st.handler.Serve(c, r, run.Caller{
		Org:       &org.Org{ID: "acme", MCPOutbound: true, Runtime: st.story.runtime},
		Principal: org.Principal{ID: principal, Role: st.story.role},
		Servers:   st.servers,
	}); err != nil { // as the HTTP server does
		chat.Errors().Write(c, err)
	}
	facts, err := st.facts()
	if err != nil {
		t.Errorf("the journal of the %s: %v", name, err)
	}
	return performance{answer: c, events: st.tap.events, prompts: st.prompts(), facts: facts}
}

// facts are those of the latest request's run; none if there was no run.
func (st *stage) facts() ([]loop.Fact, error) {
	id := st.tap.runID()
	if id == "" {
		return nil, nil
	}
	told, err := st.journal.Load(context.Background(), "acme", id)
	if err != nil {
		return nil, err
	}
	return told.Facts, nil
}

// requestBody is the story's members on top of the ones that every request has.
func requestBody(members string, f form) (string, error) {
	body := map[string]any{
		"model":    "scripted",
		"messages": []any{map[string]string{"role": "user", "content": "hi"}},
	}
	if f == asStream {
		body["stream"] = true
		body["stream_options"] = map[string]bool{"include_usage": true}
	}
	if strings.TrimSpace(members) != "" {
		if err := json.Unmarshal([]byte(members), &body); err != nil {
			return "", err
		}
	}
	out, err := json.Marshal(body)
	return string(out), err
}
