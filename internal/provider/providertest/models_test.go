package providertest_test

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

	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// list is how a dialect lists its models.
type list struct {
	dialect
	member, key string // of the elements in a page, and of the name in an element
	// next returns what a page has beside its elements if another one follows; nil = there are no pages.
	next   func(cursor string) string
	header string // that carries the key, as it comes
	asked  []string
}

func lists() []list {
	more := func(cursor string) string { return `,"has_more":true,"last_id":"` + cursor + `"` }
	token := func(cursor string) string { return `,"nextPageToken":"` + cursor + `"` }
	return []list{
		{chatDialect(), "data", "id", nil, "Bearer sk-key", []string{"/v1/models?x=1"}},
		{responsesDialect(), "data", "id", nil, "Bearer sk-key", []string{"/v1/models?x=1"}},
		{messagesDialect(), "data", "id", more, "sk-key 2023-06-01",
			[]string{"/v1/models?x=1&limit=1000", "/v1/models?x=1&after_id=next+%26&limit=1000"}},
		{geminiDialect(), "models", "name", token, "sk-key",
			[]string{"/v1/models?x=1&pageSize=1000", "/v1/models?x=1&pageSize=1000&pageToken=next+%26"}},
	}
}

// page returns a page with the names.
func (l list) page(beside string, names ...string) string {
	var elements []string
	for _, name := range names {
		elements = append(elements, fmt.Sprintf(`{%q:%q}`, l.key, name))
	}
	return fmt.Sprintf(`{%q:[%s]%s}`, l.member, strings.Join(elements, ","), beside)
}

// listed returns what the provider lists.
func (l list) listed(ctx context.Context, e wire.Endpoint, memory tool.Memory) (all []model.Listed, err error) {
	err = l.open(e).(model.Lister).List(ctx, memory, func(m model.Listed) bool {
		all = append(all, m)
		return true
	})
	return all, err
}

// eachList runs a test for each dialect that lists models.
func eachList(t *testing.T, test func(t *testing.T, l list)) {
	for _, l := range lists() {
		t.Run(l.name, func(t *testing.T) { test(t, l) })
	}
}

func TestListsOfModels(t *testing.T) {
	ofOpenAI, anthropics, geminis := lists()[:2], lists()[2:3], lists()[3:]
	for _, tt := range []struct {
		name  string
		lists []list
		body  string
		want  []model.Listed
	}{
		{"OpenAI's", ofOpenAI, `{"object":"list","data":[{"id":"gpt-5","object":"model","created":1700000000,"owned_by":"openai"},` +
			`{"id":"o3","created":1}]}`,
			[]model.Listed{{Name: "gpt-5", Created: time.Unix(1700000000, 0).UTC()}, {Name: "o3", Created: time.Unix(1, 0).UTC()}}},
		{"a bare array", ofOpenAI, ` [{"id":"meta/llama"}]`, []model.Listed{{Name: "meta/llama"}}},
		{"with a byte order mark", ofOpenAI, "\ufeff{\"data\":[{\"id\":\"a\"}]}\n", []model.Listed{{Name: "a"}}},
		{"empty", ofOpenAI, `{"data":[]}`, nil},
		{"null, where a server has no models", ofOpenAI, `{"object":"list","data":null}`, nil},
		{"an error that is null", ofOpenAI, `{"error":null,"data":[{"id":"a"}]}`, []model.Listed{{Name: "a"}}},
		{"elements that are no models", ofOpenAI, `{"data":[{"id":7},{"name":"x"},"y",null,[],{"id":""},{"id":"a"}]}`,
			[]model.Listed{{Name: "a"}}},
		{"times that are none", ofOpenAI, `{"data":[{"id":"a","created":-1},{"id":"b","created":"1"},{"id":"c","created":1.7e9},` +
			`{"id":"d","created":1e300}]}`,
			[]model.Listed{{Name: "a"}, {Name: "b"}, {Name: "c", Created: time.Unix(1700000000, 0).UTC()}, {Name: "d"}}},
		{"OpenRouter's and vLLM's", ofOpenAI, `{"data":[{"id":"a","context_length":200000,"supported_parameters":["seed","tools"]},` +
			`{"id":"b","max_model_len":8192,"supported_parameters":[]}]}`,
			[]model.Listed{{Name: "a", ContextWindow: 200_000, Tools: new(true)}, {Name: "b", ContextWindow: 8192, Tools: new(false)}}},
		{"Mistral's and Groq's", ofOpenAI, `[{"id":"a","max_context_length":32768,"capabilities":{"function_calling":true}},` +
			`{"id":"b","context_window":131072,"capabilities":{"function_calling":false}}]`,
			[]model.Listed{{Name: "a", ContextWindow: 32_768, Tools: new(true)}, {Name: "b", ContextWindow: 131_072, Tools: new(false)}}},
		{"what says nothing", ofOpenAI, `[` +
			`{"id":"a","context_length":"8192","capabilities":{"function_calling":"yes"},"supported_parameters":"tools"},` +
			`{"id":"b","context_length":1e300,"capabilities":[]},{"id":"c","context_length":-1}]`,
			[]model.Listed{{Name: "a"}, {Name: "b"}, {Name: "c"}}},
		{"an escaped name", ofOpenAI, `{"data":[{"id":"a\u002fb"}]}`, []model.Listed{{Name: "a/b"}}},
		{"Anthropic's", anthropics, `{"data":[` +
			`{"type":"model","id":"claude-b","display_name":"B","created_at":"2026-02-04T00:00:00Z","max_input_tokens":200000},` +
			`{"id":7},{"id":"claude-a","created_at":"1969-01-01T00:00:00Z"},{"id":"x","created":5}],"has_more":false,"last_id":"x"}`,
			[]model.Listed{
				{Name: "claude-b", Created: time.Unix(1770163200, 0).UTC(), ContextWindow: 200_000},
				{Name: "claude-a"}, {Name: "x", Created: time.Unix(5, 0).UTC()},
			}},
		{"Gemini's", geminis, `{"models":[` +
			`{"name":"models/gemini-b","inputTokenLimit":1048576,"supportedGenerationMethods":["generateContent","countTokens"]},` +
			`{"name":"models/embed","supportedGenerationMethods":["embedContent"]},{"name":7},{"name":"tunedModels/a"},` +
			`{"name":"models/x","supportedGenerationMethods":["generateContent"]}]}`,
			[]model.Listed{{Name: "gemini-b", ContextWindow: 1_048_576}, {Name: "tunedModels/a"}, {Name: "x"}}},
	} {
		for _, l := range tt.lists {
			t.Run(tt.name+" "+l.name, func(t *testing.T) {
				got, err := l.listed(t.Context(), providertest.Serve(t, providertest.Answer(200, nil, tt.body)), nil)
				if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
					t.Error(err, diff)
				}
			})
		}
	}
}

func TestAListOfModelsHasAllPages(t *testing.T) {
	eachList(t, func(t *testing.T, l list) {
		var asked []string
		e := providertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
			h := r.Header
			keys := h.Get("Authorization") + h.Get("X-Api-Key") + h.Get("X-Goog-Api-Key") + " " + h.Get("Anthropic-Version")
			if strings.TrimSpace(keys) != l.header || r.Method != http.MethodGet || r.ContentLength != 0 ||
				h.Get("Accept-Encoding") != "identity" || h.Get("Content-Type") != "" {
				t.Errorf("%s %s with %d bytes: %v", r.Method, r.URL, r.ContentLength, h)
			}
			if asked = append(asked, r.URL.String()); len(asked) < len(l.asked) {
				_, _ = io.WriteString(w, l.page(l.next("next &"), "a", "b"))
				return
			}
			_, _ = io.WriteString(w, l.page("", "c"))
		}, func(e *wire.Endpoint) {
			e.BaseURL += "/?x=1"
			e.APIKey = func(context.Context) (string, error) { return "sk-key", nil }
		})
		memory := memlimit.New(memlimit.Options{}).Open("")
		all, err := l.listed(t.Context(), e, memory.Share())
		want := []model.Listed{{Name: "c"}}
		if l.next != nil {
			want = []model.Listed{{Name: "a"}, {Name: "b"}, {Name: "c"}}
		}
		if diff := cmp.Diff(want, all) + cmp.Diff(l.asked, asked); diff != "" || err != nil || memory.Used() != 0 {
			t.Errorf("%v; %d bytes stay charged: %s", err, memory.Used(), diff)
		}
		if _, err := l.listed(t.Context(), wire.Endpoint{BaseURL: "nowhere"}, nil); err == nil {
			t.Error("a base URL without a host is asked")
		}
	})
}

func TestListsOfModelsThatFail(t *testing.T) { // P40
	overloaded := `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`
	unavailable := `{"error":{"code":503,"message":"Overloaded","status":"UNAVAILABLE"}}`
	wrongKey := `{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}`
	noList := "sent an answer without a list of models"
	page := "answered with text/html, not JSON. Is base_url right?"
	eachList(t, func(t *testing.T, l list) {
		most := 16 << 20
		if l.next != nil {
			most = 4 << 20
		}
		cut := strings.TrimSuffix(l.page("", "a"), "]}")
		for _, tt := range []struct {
			name    string
			status  int
			header  map[string]string
			body    string // with the number of the request, if it has a verb
			class   model.ErrorClass
			message string
		}{
			{"there is no such path", 404, nil, `{"error":{"message":"no"}}`, model.Target, "no"},
			{"the wrong key", 401, nil, `{"error":{"message":"who?"}}`, model.Target, "who?"},
			{"the wrong key, with 400", 400, nil, wrongKey, model.Target, "API key not valid."},
			{"a broken server", 500, nil, `oops`, model.Transient, "oops"},
			{"a redirect is not followed", 302, map[string]string{"Location": "http://127.0.0.1:1/"}, ``, model.Target,
				`a redirect to "http://127.0.0.1:1/"; redirects are not followed. Is base_url right?`},
			{"no content", 204, nil, ``, model.Target, ""},
			{"an error with status 200", 200, nil, `{"error":{"message":"no","type":"server_error"}}`, model.Transient, "no"},
			{"an error of an overload", 200, nil, overloaded, model.Transient, "Overloaded"},
			{"an error of Google", 200, nil, unavailable, model.Transient, "Overloaded"},
			{"a web page", 200, nil, `<!doctype html>`, model.Target, page},
			{"no JSON", 200, nil, `models: a`, model.Transient, `sent an answer that is not valid JSON: "models: a"`},
			{"a cut list", 200, nil, cut, model.Transient, fmt.Sprintf(`sent an answer that is not valid JSON: %q`, cut)},
			{"nothing", 200, nil, ``, model.Transient, `sent an answer that is not valid JSON: ""`},
			{"another object", 200, nil, `{"others":[]}`, model.Transient, noList},
			{"a list that is text", 200, nil, fmt.Sprintf(`{%q:"a"}`, l.member), model.Transient, noList},
			{"compressed", 200, map[string]string{"Content-Encoding": "gzip"}, `x`, model.Target, `answered with the content encoding "gzip"`},
			{"too large", 200, nil, l.page(strings.Repeat(" ", most), "a"), model.Transient,
				fmt.Sprintf("sent an answer of more than %d bytes", most)},
			{"a bare array", 200, nil, `[]`, model.Transient, noList},
			{"the same page again", 200, nil, l.page(l.more("a"), "a"), model.Transient, "repeats a page of its list of models"},
			{"no end of pages", 200, nil, l.page(l.more("p%d")), model.Transient, "lists its models on more than 20 pages"},
		} {
			if l.next == nil && (tt.body == `[]` || strings.Contains(tt.name, "page") && tt.name != "a web page") {
				continue // such a list has no pages, and may be an array
			}
			t.Run(tt.name, func(t *testing.T) {
				asked := 0
				e := providertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
					asked++
					providertest.Answer(tt.status, tt.header, strings.ReplaceAll(tt.body, "%d", fmt.Sprint(asked)))(w, r)
				})
				memory := memlimit.New(memlimit.Options{}).Open("")
				got, err := l.listed(t.Context(), e, memory.Share())
				failed, is := errors.AsType[*model.Error](err)
				if !is || failed.Class != tt.class || failed.Message != tt.message || got != nil && l.next == nil {
					t.Errorf("%#v, after %v", err, got)
				}
				if memory.Used() != 0 || asked > 20 {
					t.Errorf("%d bytes stay charged after %d requests", memory.Used(), asked)
				}
			})
		}
	})
}

// more returns what a page has beside its elements; "" = there are no pages.
func (l list) more(cursor string) string {
	if l.next == nil {
		return ""
	}
	return l.next(cursor)
}

func TestAListOfModelsIsChargedWhileItIsRead(t *testing.T) { // P40
	eachList(t, func(t *testing.T, l list) {
		asked := 0
		e := providertest.Serve(t, func(w http.ResponseWriter, _ *http.Request) {
			asked++
			_, _ = io.WriteString(w, l.page(l.more("b"), strings.Repeat("x", 1<<20), "b"))
		})
		var used int64
		memory := memlimit.New(memlimit.Options{}).Open("")
		n := 0
		err := l.open(e).(model.Lister).List(t.Context(), memory.Share(), func(model.Listed) bool {
			used = memory.Used()
			n++
			return false // the caller has enough
		})
		if err != nil || n != 1 || asked != 1 || used < 1<<20 || memory.Used() != 0 {
			t.Errorf("%v; %d models, %d requests, %d bytes while it is read and %d afterwards", err, n, asked, used, memory.Used())
		}
		memory = memlimit.New(memlimit.Options{Run: 1 << 20}).Open("")
		if got, err := l.listed(t.Context(), e, memory.Share()); !errors.As(err, new(*memlimit.Refused)) || got != nil || memory.Used() != 0 {
			t.Errorf("%v with %d models", err, len(got))
		}
	})
}

func TestAListOfModelsThatStallsEndsWithItsContext(t *testing.T) {
	eachList(t, func(t *testing.T, l list) {
		for name, before := range map[string]string{"before the header": "", "in the body": `{"data":[`} {
			t.Run(name, func(t *testing.T) {
				e := providertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
					if before != "" {
						_, _ = io.WriteString(w, before)
						_ = http.NewResponseController(w).Flush()
					}
					<-r.Context().Done()
				})
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				_, err := l.listed(ctx, e, nil)
				if failed, is := errors.AsType[*model.Error](err); !is || failed.Class != model.Gone || !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
	})
}
