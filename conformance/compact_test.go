package conformance

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// testCodexCompacts runs a task whose conversation Codex compacts twice: Codex believes that the provider is
// OpenAI's, and lets it compact. After each of two commands the conversation is said to be
// larger than Codex allows. The model gets a word of the first prompt until the end.
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
	up := turnpiketest.NewUpstream(turnpiketest.NewScript(t, story), turnpiketest.UpstreamOptions{Strict: strict})
	t.Cleanup(up.Close)
	gateway := s.startGateway(t, strings.TrimSuffix(up.URL, "/v1"), []object{})
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
	requests := up.Requests()
	if len(requests) != 5 {
		t.Fatalf("%d requests at the provider, want 5", len(requests))
	}
	for i, words := range [][]string{
		2: {"heron", "First summary: one.txt is made"},
		4: {"heron", "Second summary: both files are made"},
	} {
		for _, word := range words {
			if !bytes.Contains(requests[i].Body, []byte(word)) {
				t.Errorf("the provider did not get %q in request %d:\n%s", word, i, requests[i].Body)
			}
		}
	}
}

// testCompactEndpoint compacts with the official Node client, which has the endpoint.
func testCompactEndpoint(t *testing.T, s *site) { // P50
	for _, model := range []string{"gpt-test", "claude-sonnet-4-5", "gemini-test", "responses-test"} {
		t.Run(model, func(t *testing.T) {
			const story = "text I will remember it.\n\ntext The user has told a code word.\n\ntext heron"
			up := turnpiketest.NewUpstream(turnpiketest.NewScript(t, story), turnpiketest.UpstreamOptions{Strict: true})
			t.Cleanup(up.Close)
			g := s.startGateway(t, strings.TrimSuffix(up.URL, "/v1"), []object{})
			c := nodeClient{node: s.node, script: "compact.mjs"}
			got := answer(t, c, ask{BaseURL: g.url + "/v1", Key: devKey, Model: model})
			wantEqual(t, "text", "heron", got.Text)
			wantAccepted(t, up)
			last := up.Requests()[2].Body
			for _, word := range []string{"The code word is heron.", "The user has told a code word."} {
				if !bytes.Contains(last, []byte(word)) {
					t.Errorf("the provider did not get %q:\n%s", word, last)
				}
			}
		})
	}
}
