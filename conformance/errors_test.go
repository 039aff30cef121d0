package conformance

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// failingScript fails as the model's name says: gpt-429 answers 429, and
// gpt-break-error and gpt-break-cut break a stream behind its first words.
func failingScript(ask chatRequest) turn {
	kind := strings.TrimPrefix(ask.Model, "gpt-")
	if status, err := strconv.Atoi(kind); err == nil {
		failed := turn{Status: status, Message: "the scripted provider says " + kind}
		if status == http.StatusTooManyRequests {
			failed.RetryAfter = "7"
		}
		return failed
	}
	if how, found := strings.CutPrefix(kind, "break-"); found {
		return turn{Text: "It was a dark and stormy", Break: how, Message: "the scripted provider broke"}
	}
	return turn{Text: "All is well.", Usage: tokens(3, 4)}
}

// errorCase is a request that fails and what its error must look like.
type errorCase struct {
	name    string
	ask     func(r *rig) ask
	status  int
	node    string // the Node client's class; the Go client has one class for all
	code    string // empty = not looked at
	message string // a regular expression
	retry   string // the Retry-After header
}

func errorCases() []errorCase {
	return []errorCase{
		{name: "a wrong key", ask: withKey("sk-wrong"), status: 401, node: "AuthenticationError"},
		{name: "a role that may not run", ask: withKey(readerKey), status: 403, node: "PermissionDeniedError"},
		{name: "an unknown model names the known ones", ask: withModel("clod-9"), status: 404, node: "NotFoundError", message: `gpt-test`},
		{name: "an unknown path", ask: withRaw("/nowhere", `{}`), status: 404, node: "NotFoundError"},
		{name: "malformed JSON names the place", ask: withRaw("/chat/completions", `{"model":"gpt-test","messages":[}`),
			status: 400, node: "BadRequestError", message: `(?i)(offset|position|line|column|byte|character)s?\D{0,12}\d+`},
		{name: "a body over 10 MiB", ask: withRaw("/chat/completions", largeBody(10<<20)), status: 413, node: "APIError"},
		{name: "a client's tool named like a gateway's", ask: withTool("echo"),
			status: 422, node: "UnprocessableEntityError", code: "tool_name_conflict", message: `echo.*everything|everything.*echo`},
		{name: "a provider's rate limit, in the loop", ask: withModel("gpt-429"),
			status: 429, node: "RateLimitError", message: "provider says 429", retry: "7"},
		{name: "a provider's rate limit, relayed", ask: relayed("gpt-429"),
			status: 429, node: "RateLimitError", message: "provider says 429", retry: "7"},
		{name: "a provider's error 500, in the loop", ask: withModel("gpt-500"), status: 500, node: "InternalServerError", message: "provider says 500"},
		{name: "a provider's error 500, relayed", ask: relayed("gpt-500"), status: 500, node: "InternalServerError", message: "provider says 500"},
		{name: "a provider's error 503, in the loop", ask: withModel("gpt-503"), status: 503, node: "InternalServerError", message: "provider says 503"},
		{name: "a provider's error 503, relayed", ask: relayed("gpt-503"), status: 503, node: "InternalServerError", message: "provider says 503"},
	}
}

func testErrors(t *testing.T, s *site) { // P12
	r := s.newRig(t, failingScript)
	for _, tt := range errorCases() {
		for _, c := range r.clients {
			t.Run(tt.name+" in "+c.name(), func(t *testing.T) { tt.check(t, r, c, false) })
		}
	}
	// A stream that fails before its first event is an answer with a status, too.
	streamed := errorCase{ask: withModel("gpt-503"), status: 503, node: "InternalServerError", message: "provider says 503"}
	for _, c := range r.clients {
		t.Run("a provider's error before the first event in "+c.name(), func(t *testing.T) { streamed.check(t, r, c, true) })
	}
	t.Run("a body just under 10 MiB passes", func(t *testing.T) {
		wantEqual(t, "error", (*clientError)(nil), run(t, goClient{}, withRaw("/chat/completions", largeBody(10<<20-1<<10))(r)).Error)
	})
}

func (tt errorCase) check(t *testing.T, r *rig, c client, stream bool) {
	question := tt.ask(r)
	question.NoRetries, question.Stream = true, stream
	got := run(t, c, question).Error
	if got == nil {
		t.Fatal("no error was raised")
	}
	class := tt.node
	if c.name() == "Go" {
		class = "openai.Error"
	}
	wantEqual(t, "class", class, got.Class)
	wantEqual(t, "status", tt.status, got.Status)
	wantEqual(t, "is an APIError", true, got.IsAPIError)
	if tt.code != "" {
		wantEqual(t, "code", tt.code, got.Code)
	}
	if tt.retry != "" {
		wantEqual(t, "Retry-After", tt.retry, got.RetryAfter)
	}
	if !regexp.MustCompile(tt.message).MatchString(got.Message) || strings.Contains(got.Message, "no body") {
		t.Errorf("message = %q, want one that matches %q", got.Message, tt.message)
	}
}

// testBrokenStream lets the upstream fail behind the first words of its text.
func testBrokenStream(t *testing.T, s *site) { // G17
	r := s.newRig(t, failingScript)
	for _, how := range []string{"error", "cut"} {
		for _, c := range r.clients {
			t.Run("upstream ends with "+how+" in "+c.name(), func(t *testing.T) {
				question := r.ask("gpt-break-"+how, "Tell me a story.", true)
				question.NoRetries = true
				got := run(t, c, question)
				wantEqual(t, "text before the failure", "It was a dark and stormy", got.Text)
				wantEqual(t, "finish reasons", 0, len(got.FinishReasons))
				if got.Error == nil {
					t.Fatal("no error was raised")
				}
				wantEqual(t, "class", map[string]string{"Node": "APIError", "Go": "ssestream.StreamError"}[c.name()], got.Error.Class)
				wantEqual(t, "requests at the upstream", 1, len(r.upstream.take()))
			})
		}
	}
}

func withKey(key string) func(*rig) ask {
	return func(r *rig) ask {
		question := r.ask("gpt-test", "Hello?", false)
		question.Key = key
		return question
	}
}

func withModel(model string) func(*rig) ask {
	return func(r *rig) ask { return r.ask(model, "Hello?", false) }
}

func relayed(model string) func(*rig) ask {
	return func(r *rig) ask {
		question := r.ask(model, "Hello?", false)
		question.Header = map[string]string{"turnpike-mcp-disabled": "true"}
		return question
	}
}

func withTool(name string) func(*rig) ask {
	return func(r *rig) ask {
		question := r.ask("gpt-test", "Hello?", false)
		question.Request["tools"] = []object{clientTool(name)}
		return question
	}
}

func withRaw(path, body string) func(*rig) ask {
	return func(r *rig) ask {
		question := r.ask("gpt-test", "", false)
		question.Path, question.Raw = path, body
		return question
	}
}

// largeBody is a chat request of a little more than size bytes.
func largeBody(size int) string {
	return `{"model":"gpt-test","messages":[{"role":"user","content":"` + strings.Repeat("a", size) + `"}]}`
}
