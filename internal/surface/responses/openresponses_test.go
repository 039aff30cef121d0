package responses_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// The HTTP cases of the public compliance suite of Open Responses, in our own words. Each has the
// name that the suite gives it. response-output-phase-schema only checks the suite's own schema
// with an answer that it has made itself.

// complianceCase is a request and what must hold of its answer, beside its schema.
type complianceCase struct {
	name     string
	path     string // below /v1
	model    string // text: it says something; call: it calls get_weather
	body     string // further members, in JSON
	stream   bool
	schema   string // of the answer; "" = none is checked
	statuses []int  // nil = 200
	checks   []func(complianceAnswer) error
}

// complianceAnswer is a valid answer: the object, or the events with the object of the last one.
type complianceAnswer struct {
	Object string
	Status string
	Output []struct{ Type, Role, Phase string }

	events []complianceEvent
}

type complianceEvent struct {
	Type string
	Item struct{ Type string }
}

func hasOutput(a complianceAnswer) error {
	if len(a.Output) == 0 {
		return errors.New("the answer has no output items")
	}
	return nil
}

func hasOutputType(kind string) func(complianceAnswer) error {
	return func(a complianceAnswer) error {
		for _, it := range a.Output {
			if it.Type == kind {
				return nil
			}
		}
		return fmt.Errorf("the output has no %s: %+v", kind, a.Output)
	}
}

func isCompleted(a complianceAnswer) error {
	if a.Status != "completed" {
		return fmt.Errorf("the status is %q", a.Status)
	}
	return nil
}

func isCompaction(a complianceAnswer) error {
	if a.Object != "response.compaction" {
		return fmt.Errorf("the object is a %q", a.Object)
	}
	return nil
}

func hasEvents(a complianceAnswer) error {
	if len(a.events) == 0 {
		return errors.New("no events came")
	}
	return nil
}

// streamsCall wants the events of a function call: its begin, its arguments and its end.
func streamsCall(a complianceAnswer) error {
	has := func(kind, item string) bool {
		return slices.ContainsFunc(a.events, func(e complianceEvent) bool { return e.Type == kind && (item == "" || e.Item.Type == item) })
	}
	for _, want := range [][2]string{
		{"response.output_item.added", "function_call"}, {"response.function_call_arguments.delta", ""},
		{"response.function_call_arguments.done", ""}, {"response.output_item.done", "function_call"},
	} {
		if !has(want[0], want[1]) {
			return fmt.Errorf("the stream has no %s %s", want[0], want[1])
		}
	}
	return nil
}

// dot is a picture of one pixel.
const dot = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8Dwn4EIwDiqkL4KAcT9GO0U4BxoAAAAAElFTkSuQmCC"

func complianceCases() []complianceCase {
	type check = func(complianceAnswer) error
	said := []check{hasOutput, isCompleted}
	const weather = `"input":[{"type":"message","role":"user","content":"What is the weather in San Francisco?"}],"tools":[{"type":"function","name":"get_weather",` +
		`"description":"Current weather at a place","parameters":{"type":"object","properties":{"location":{"type":"string","description":"a city"}},"required":["location"]}}]`
	const compact = "/responses/compact"
	return []complianceCase{
		{name: "basic-response", model: "text", body: `"input":[{"type":"message","role":"user","content":"Greet me in three words."}]`, checks: said},
		{
			name: "assistant-phase", model: "text", checks: said,
			body: `"input":[{"type":"message","role":"assistant","phase":"commentary","content":"The saved number is the answer."},` +
				`{"type":"message","role":"assistant","phase":"final_answer","content":"It is four."},{"type":"message","role":"user","content":"Only the number."}]`,
		},
		{
			name: "streaming-response", model: "text", stream: true, checks: []check{hasEvents, isCompleted},
			body: `"input":[{"type":"message","role":"user","content":"Count to five."}]`,
		},
		{
			name: "system-prompt", model: "text", checks: said,
			body: `"input":[{"type":"message","role":"system","content":"Talk like a pirate."},{"type":"message","role":"user","content":"Greet me."}]`,
		},
		{name: "tool-calling", model: "call", body: weather, checks: []check{hasOutput, hasOutputType("function_call")}},
		{name: "tool-calling-streaming", model: "call", stream: true, body: weather, checks: []check{hasEvents, streamsCall}},
		{
			name: "image-input", model: "text", checks: said,
			body: `"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"What is in the picture?"},{"type":"input_image","image_url":"` + dot + `"}]}]`,
		},
		{
			name: "multi-turn", model: "text", checks: said,
			body: `"input":[{"type":"message","role":"user","content":"I am Alice."},{"type":"message","role":"assistant","content":"Hello Alice."},` +
				`{"type":"message","role":"user","content":"Who am I?"}]`,
		},
		{
			name: "compact-response", path: compact, model: "text", schema: "CompactResource", checks: []check{hasOutput, isCompaction, hasOutputType("compaction")},
			body: `"prompt_cache_key":"compliance","input":[{"type":"message","role":"user","content":"We launch on Tuesday, and tell support first."},` +
				`{"type":"message","role":"assistant","content":"Tuesday, and support first."}]`,
		},
		{name: "compact-missing-model", path: compact, statuses: []int{400, 422}, body: `"input":[{"type":"message","role":"user","content":"Compact this."}]`},
	}
}

// play sends the request of a case and returns what is wrong with the answer.
func (c complianceCase) play(g *Gateway, specs *spectest.Documents, dialect string) error {
	body, path, schema := c.body, c.path, c.schema
	if path == "" {
		path, schema = "/responses", "ResponseResource"
	}
	if c.model != "" {
		body = fmt.Sprintf(`"model":"%s-%s",%s`, dialect, c.model, body)
	}
	if c.stream {
		body += `,"stream":true`
	}
	a := g.Send("POST", "/v1"+path, strings.NewReader("{"+body+"}"))
	if c.statuses != nil {
		if !slices.Contains(c.statuses, a.Status) {
			return fmt.Errorf("status %d, want one of %d: %s", a.Status, c.statuses, a.Body)
		}
		return errors.Join(specs.Violations("POST "+path, string(a.Body))...)
	}
	if a.Status != http.StatusOK {
		return fmt.Errorf("status %d: %s", a.Status, a.Body)
	}
	problems := specs.Violations("POST "+path, string(a.Body)) // of OpenAI's document too
	got, object := complianceAnswer{}, a.Body
	if c.stream {
		var err error
		if got.events, object, err = complianceEvents(a, specs); err != nil {
			return err
		}
	}
	if err := specs.Whole(schema, object); err != nil {
		problems = append(problems, err)
	}
	if err := json.Unmarshal(object, &got); err != nil {
		return fmt.Errorf("%w: %s", err, object)
	}
	for _, check := range c.checks {
		problems = append(problems, check(got))
	}
	return errors.Join(problems...)
}

// complianceEvents reads a stream: its events, each with the schema of its type, and the object of
// the last one.
func complianceEvents(a Answer, specs *spectest.Documents) (events []complianceEvent, last []byte, err error) {
	if kind := a.Header.Get("Content-Type"); kind != "text/event-stream" || strings.Contains(string(a.Body), "\r") {
		return nil, nil, fmt.Errorf("the content type is %q, or lines end with CR", kind)
	}
	frames := strings.Split(strings.TrimSuffix(string(a.Body), "\n\n"), "\n\n")
	if frames[len(frames)-1] != "data: [DONE]" {
		return nil, nil, fmt.Errorf("the last frame is %q", frames[len(frames)-1])
	}
	for _, frame := range frames[:len(frames)-1] {
		name, data, is := strings.Cut(strings.TrimPrefix(frame, "event: "), "\ndata: ")
		var ev struct {
			complianceEvent
			Response json.RawMessage
		}
		if err := json.Unmarshal([]byte(data), &ev); err != nil || !is || ev.Type != name {
			return nil, nil, fmt.Errorf("frame %q: %w", frame, err)
		}
		if err := specs.WholeEvent([]byte(data)); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		events, last = append(events, ev.complianceEvent), ev.Response
	}
	return events, last, nil
}

// complianceSite is a gateway before providers of every dialect: one that speaks and one that calls,
// each with a model of its own. The model calls go through the barrier.
func complianceSite(t *testing.T, b *modelBarrier) *Gateway {
	t.Helper()
	var providers strings.Builder
	for dialect, kind := range complianceDialects {
		for model, story := range map[string]string{"text": "text Hello there, Alice.\nagain", "call": `call c1 get_weather {"location":"San Francisco"}` + "\nagain"} {
			up := upstreamtest.New(turnpiketest.NewScript(t, story), upstreamtest.Options{Strict: true})
			t.Cleanup(up.Close)
			name := dialect + "-" + model
			fmt.Fprintf(&providers, "  - {name: %s, kind: %s, base_url: %q, api_key: k, models: [%s]}\n", name, kind, b.before(t, up.URL), name)
		}
	}
	yaml := Site{Upstream: "http://127.0.0.1:1"}.Yaml()
	yaml = strings.Replace(yaml, "providers:\n", "providers:\n"+providers.String(), 1)
	return MustRun(t, "master_key: "+MasterKey+"\n"+yaml)
}

var complianceDialects = map[string]string{"chat": "openai", "responses": "openai-responses", "anthropic": "anthropic", "gemini": "gemini"}

// modelBarrier holds model calls until n of them have come, once. The zero value holds none.
type modelBarrier struct {
	mu   sync.Mutex
	left int           // that have not come; guarded by mu
	full chan struct{} // closed when all have come; nil = it is open
}

// close lets the next n model calls wait for one another.
func (b *modelBarrier) close(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left, b.full = n, make(chan struct{})
}

// before returns the URL of a proxy before a provider.
func (b *modelBarrier) before(t *testing.T, provider string) string {
	t.Helper()
	target, err := url.Parse(provider)
	if err != nil {
		t.Fatal(err)
	}
	onward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: target.Scheme, Host: target.Host})
	onward.FlushInterval = -1
	transport := &http.Transport{}
	onward.Transport = transport
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			b.pass(r)
		}
		onward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		transport.CloseIdleConnections()
	})
	return s.URL + target.Path
}

func (b *modelBarrier) pass(r *http.Request) {
	b.mu.Lock()
	full := b.full
	if b.left--; b.left == 0 && full != nil {
		close(full)
		b.full = nil
	}
	b.mu.Unlock()
	if full == nil {
		return
	}
	select {
	case <-full:
	case <-r.Context().Done():
	}
}

// The HTTP cases of the public compliance suite pass before providers of every dialect, one after
// the other and, as the suite sends them, 16 at once: none is answered before the model calls of all
// have come to the providers. // P11 P50
func TestTheCasesOfOpenResponses(t *testing.T) {
	NoLeaks(t)
	specs := spectest.Find(t) // without the documents, everything but the schemas is checked
	barrier := &modelBarrier{}
	g := complianceSite(t, barrier)
	cases := complianceCases()
	for dialect := range complianceDialects {
		for _, c := range cases {
			t.Run(dialect+"/"+c.name, func(t *testing.T) {
				if err := c.play(g, specs, dialect); err != nil {
					t.Error(err)
				}
			})
		}
		t.Run(dialect+"/16 at once", func(t *testing.T) {
			const atOnce = 16
			barrier.close(atOnce - 1) // compact-missing-model makes no model call
			var all sync.WaitGroup
			for i := range atOnce {
				c := cases[i%len(cases)]
				if i >= len(cases) { // in the place of the cases with a WebSocket
					c = cases[i%3]
				}
				all.Go(func() {
					if err := c.play(g, specs, dialect); err != nil {
						t.Errorf("%s: %v", c.name, err)
					}
				})
			}
			all.Wait()
		})
	}
	if specs == nil {
		return
	}
	if bodies, events := specs.Checked(); bodies < 100 || events < 100 {
		t.Errorf("%d bodies and %d events were checked", bodies, events)
	}
}
