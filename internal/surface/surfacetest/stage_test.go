package surfacetest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/relay"
	"github.com/turnpike-gateway/turnpike/internal/resulttool"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/internal/surface/responses"
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
	stored  *client // the answer as it was stored; nil = there is none
}

// stage is everything that a story's requests are played on.
type stage struct {
	story   *story
	script  *turnpiketest.Script
	second  *turnpiketest.Script // of the fallback; nil = there is none
	servers []catalog.Server
	journal memory.Journal
	tap     *tap
	api     api
	serve   surface.Endpoint
	get     surface.Endpoint
	shown   int // prompts that were looked at
	before  prompt
}

// storyModel is a script as a provider of the story's API. Stories do not relay.
type storyModel struct{ *turnpiketest.Script }

// Relays implements relay.Model.
func (storyModel) Relays(string) bool { return true }

// Relay implements relay.Model.
func (storyModel) Relay(context.Context, *relay.Request) (*relay.Response, error) {
	panic("a story was relayed")
}

// play performs the story's requests in one form.
func play(t *testing.T, s *story, a api, f form) []performance {
	var out []performance
	s, err := parse(s.path, string(s.format())) // tools count their calls
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		st := &stage{story: s, api: a, script: turnpiketest.NewScript(t, s.get("model"))}
		if s.has("fallback model") {
			st.second = turnpiketest.NewScript(t, s.get("fallback model"))
		}
		defer st.build()()
		out = append(out, st.request(t, f, "request", "alice"))
		if s.has("second request") {
			out = append(out, st.request(t, f, "second request", s.principal))
		}
		if left := st.script.Left(); left != 0 && s.differ == "" && a.name == apis[0].name { // others may end a run earlier
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
	providers := []route.Provider{{Name: "first", Models: []string{"scripted"}, Model: storyModel{st.script}}}
	if st.second != nil {
		providers = append(providers, route.Provider{Name: "second", Models: []string{"scripted"}, Model: storyModel{st.second}})
	}
	tools := catalog.New(catalog.Options{})
	beats := sse.NewHeartbeats(0)
	beats.Start()
	ids := map[string]int{}
	kept := &memory.Conversations{}
	runner := run.New(run.Options{
		Results: resulttool.Reader{},
		Catalog: tools, Journal: &st.journal, Archive: &st.journal, LaterDeleter: &st.journal, Conversations: kept,
		NewID: func(prefix string) string {
			ids[prefix]++
			return fmt.Sprintf("%s%d", prefix, ids[prefix])
		},
		Jitter: func(time.Duration) time.Duration { return 0 },
	})
	st.tap = &tap{inner: runner}
	st.serve, st.get = st.api.serve(responses.Options{
		Options: surface.Options{
			MaxRoundsCap: func() int { return s.cap }, KeepFor: func() time.Duration { return time.Hour },
			Runner: st.tap, Router: route.New(providers), Heartbeats: beats, Log: slog.New(slog.DiscardHandler),
		},
		Conversations: kept, Runs: runner, Segments: runner.Segments(),
	})
	return func() {
		tools.Close()
		beats.Stop()
	}
}

// request sends one of the story's requests.
func (st *stage) request(t *testing.T, f form, name, principal string) performance {
	body, err := st.api.body(st.story.get(name), f)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	if st.story.leave > 0 && name == "request" {
		defer time.AfterFunc(st.story.leave, leave).Stop()
	}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, st.api.path, strings.NewReader(body))
	st.tap.events, st.tap.begin = nil, time.Now()
	c := &client{header: http.Header{}, room: st.story.unplug}
	c.left = func() bool { return ctx.Err() != nil }
	caller := caller.Caller{
		Org:       &org.Org{ID: "acme", MCPOutbound: true, Runtime: st.story.runtime},
		Principal: org.Principal{ID: principal, Role: st.story.role},
		Servers:   st.servers,
	}
	if i := slices.IndexFunc(st.servers, func(s catalog.Server) bool { return s.Name == org.BuiltinTools }); i >= 0 { // that of the switches
		caller.Switched, caller.Servers = &st.servers[i], slices.Delete(slices.Clone(st.servers), i, i+1)
	}
	if err := st.serve(c, r, caller); err != nil { // as the HTTP server does
		st.api.errors.Write(c, err)
	}
	c.gone = c.left() || c.room > 0 && len(c.pieces) == c.room
	facts, err := st.facts()
	if err != nil {
		t.Errorf("the journal of the %s: %v", name, err)
	}
	p := performance{answer: c, events: st.tap.events, prompts: st.prompts(), facts: facts}
	if id := st.tap.runID(); st.get != nil && id != "" {
		p.stored = &client{header: http.Header{}, left: func() bool { return false }}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.SetPathValue("id", conversation.SegmentID(id, ""))
		if err := st.get(p.stored, r, caller); err != nil {
			t.Errorf("the stored answer: %v", err)
		}
	}
	return p
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
