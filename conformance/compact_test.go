package conformance

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// startKnowing returns the URL of a provider that knows nothing but its prompt: a request gets the answer of the target only
// if it has the words that the answer needs, by the number of the request from 0.
func startKnowing(t *testing.T, target string, needs map[int][]string) string {
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	onward := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }, Transport: transport, FlushInterval: -1}
	var number atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client left
		}
		n := int(number.Add(1)) - 1
		for _, word := range needs[n] {
			if !bytes.Contains(body, []byte(word)) {
				t.Errorf("request %d has no %q:\n%.3000s", n, word, body)
				http.Error(w, `{"error":{"message":"the prompt does not have what is asked for"}}`, http.StatusBadRequest)
				return
			}
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		onward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		transport.CloseIdleConnections()
	})
	return s.URL
}

// testCodexCompacts runs a task whose conversation Codex compacts twice: Codex believes that the provider is
// OpenAI's, and lets it compact. After each of two commands the conversation is said to be
// larger than Codex allows. The model answers only what its prompt has: a word of the first prompt, and the summaries.
func testCodexCompacts(t *testing.T, s *site) { // P50
	if _, err := os.Stat("node_modules/@openai/codex/package.json"); err != nil {
		skip(t, "npm package @openai/codex is not installed; run npm ci in the directory conformance")
	}
	for _, model := range []string{"gpt-test", "claude-sonnet-4-5", "responses-test"} {
		t.Run(model, func(t *testing.T) { runCodexCompaction(t, s, model) })
	}
}

func runCodexCompaction(t *testing.T, s *site, model string) {
	const answer = "The code word is heron."
	story := `
call c1 exec_command {"cmd":"printf one > one.txt"}
usage 9000 100

text First summary: one.txt is made, two.txt is next.
usage 9200 50

call c2 exec_command {"cmd":"printf two > two.txt"}
usage 9000 100

text Second summary: both files are made, only the answer is missing.
usage 9200 50

text ` + answer + `
usage 900 20`
	// Codex sends members that are not in OpenAI's document to a provider that it takes for OpenAI.
	strict := model != "responses-test"
	up := upstreamtest.New(turnpiketest.NewScript(t, story), upstreamtest.Options{Strict: strict})
	t.Cleanup(up.Close)
	knowing := startKnowing(t, strings.TrimSuffix(up.URL, "/v1"), map[int][]string{
		1: {"heron"},
		2: {"heron", "First summary: one.txt is made"},
		3: {"heron", "First summary: one.txt is made"},
		4: {"heron", "Second summary: both files are made"},
	})
	gateway := s.startGateway(t, knowing, []object{})
	front := startFront(t, gateway.url)
	const more = "model_context_window = 10000\nmodel_auto_compact_token_limit = 8000\n"
	c := newCodex(t, s, more, model, "OpenAI", front.URL+"/v1")
	printed, told := c.exec(t, "The code word is heron. Make one.txt and two.txt, then say the code word.")
	wantEqual(t, "what Codex prints", answer+"\n", printed)
	compactions := 0
	for _, r := range front.take() {
		if bytes.Contains(r.body, []byte(`"compaction_trigger"`)) {
			compactions++
		}
	}
	if compactions != 2 {
		t.Errorf("Codex has compacted %d times, want twice:\n%.3000s", compactions, told)
	}
	wantAccepted(t, up)
	if requests := up.Requests(); len(requests) != 5 {
		t.Fatalf("%d requests at the provider, want 5", len(requests))
	}
}

// testCompactEndpoint compacts a conversation twice with the official Node client, which has the endpoint. The model answers
// only what its prompt has: a word of the first message, and what only the summaries say.
func testCompactEndpoint(t *testing.T, s *site) { // P50
	for _, model := range []string{"gpt-test", "claude-sonnet-4-5", "gemini-test", "responses-test"} {
		t.Run(model, func(t *testing.T) {
			const story = "text I will remember it.\n\ntext The user has told a code word. It is noted on page 12.\n\ntext On page 12.\n\n" +
				"text A code word, noted on page 12. The user asks about it.\n\ntext heron, page 12"
			up := upstreamtest.New(turnpiketest.NewScript(t, story), upstreamtest.Options{Strict: true})
			t.Cleanup(up.Close)
			const word = "The code word is heron."
			g := s.startGateway(t, startKnowing(t, strings.TrimSuffix(up.URL, "/v1"), map[int][]string{
				1: {word}, 2: {word, "noted on page 12"}, 3: {word, "noted on page 12", "On page 12."}, 4: {word, "noted on page 12. The user asks"},
			}), []object{})
			c := nodeClient{node: s.node, script: "compact.mjs"}
			got := answer(t, c, ask{BaseURL: g.url + "/v1", Key: devKey, Model: model})
			wantEqual(t, "text", "heron, page 12", got.Text)
			wantAccepted(t, up)
		})
	}
}
