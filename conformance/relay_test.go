package conformance

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// clientLoopScript asks for the client's own tool and answers with its result:
// what a provider does for a client that runs the loop itself.
func clientLoopScript(ask chatRequest) turn {
	if results := ask.results(); len(results) > 0 {
		return turn{Text: "It is " + results[0] + ".", Usage: tokens(30, 4)}
	}
	if !ask.offers(localTimeTool) {
		return turn{Text: "No clock here.", Usage: tokens(3, 4)}
	}
	return turn{
		Text:  "Let me see.",
		Calls: []seenCall{{ID: "call_17/odd id", Name: localTimeTool, Arguments: `{ "place":"Łódź – <old town>" }`}},
		Usage: tokens(12, 8),
	}
}

// testRelay switches the loop off by header and by an org without the feature.
func testRelay(t *testing.T, s *site) {
	r := s.newRig(t, clientLoopScript)
	ways := []struct {
		name, key string
		header    map[string]string
	}{
		{"header true", devKey, map[string]string{"turnpike-mcp-disabled": "true"}}, // A02
		{"header YES", devKey, map[string]string{"turnpike-mcp-disabled": "YES"}},
		{"header's alias 1", devKey, map[string]string{"floopy-mcp-disabled": "1"}},
		{"org without the feature", plainKey, nil}, // A09
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			eachWay(t, r.clients, func(t *testing.T, c client, stream bool) {
				question := r.ask("gpt-test", "What time is it in Łódź? 🕰", stream)
				question.Key, question.Header, question.Hash = way.key, way.header, true
				question.Request["tools"] = []object{clientTool(localTimeTool)}
				r.wantRelayed(t, c, question)
			})
		})
	}
	t.Run("header 0 leaves the loop on", func(t *testing.T) { // A02
		question := r.ask("gpt-test", "What time is it?", false)
		question.Header = map[string]string{"turnpike-mcp-disabled": "0"}
		answer(t, r.clients[1], question)
		if seen := r.upstream.take(); len(seen) != 1 || !seen[0].Chat.offers("echo") {
			t.Errorf("the upstream saw %d requests, want one that offers the gateway's tool echo", len(seen))
		}
	})
	r.wantToolCalls(t)
}

// wantRelayed sends a question that the scripted model answers with a call of
// the client's tool.
func (r *rig) wantRelayed(t *testing.T, c client, question ask) {
	t.Helper()
	got := answer(t, c, question)
	wantEqual(t, "text", "Let me see.", got.Text)
	wantEqual(t, "tool calls", []seenCall{{"call_17/odd id", localTimeTool, `{ "place":"Łódź – <old town>" }`}}, got.ToolCalls)
	wantEqual(t, "finish reasons", []string{"tool_calls"}, got.FinishReasons)
	wantEqual(t, "usage", &usage{12, 8, 20}, got.Usage)
	seen := r.upstream.take()
	if len(seen) != 1 {
		t.Fatalf("the upstream saw %d requests, want 1", len(seen))
	}
	wantEqual(t, "SHA-256 of the body: client's, upstream's", got.BodySHA256, seen[0].sum())
}

// testRelayBytes sends a body that no client would write, and compares bytes.
func testRelayBytes(t *testing.T, s *site) { // A02, A09
	r := s.newRig(t, clientLoopScript)
	body := "{ \"stream\" : %s,\r\n\t\"model\":\"gpt-test\", \"messages\":[{\"role\":\"user\",\"content\":\"\\u0061 \\/ b\"}]," +
		" \"seed\": 1e2, \"vendor\":{\"z\":1,\"a\":[ ]}, \"seed\":100000000000000000001 }\n"
	model := clientLoopScript(chatRequest{})
	head, rest := model.events("gpt-test", false)
	answers := map[string][]byte{
		"false": model.completion("gpt-test"),
		"true":  bytes.Join(append(head, rest...), nil),
	}
	for stream, want := range answers {
		t.Run("stream "+stream, func(t *testing.T) {
			sent := strings.Replace(body, "%s", stream, 1)
			got := post(t, r.gateway+"/v1/chat/completions", plainKey, sent)
			wantEqual(t, "answer's body", string(want), got)
			seen := r.upstream.take()
			if len(seen) != 1 {
				t.Fatalf("the upstream saw %d requests, want 1", len(seen))
			}
			wantEqual(t, "request's body", sent, string(seen[0].Body))
		})
	}
}

// post sends body as it is and returns the body of the answer, which must be 200.
func post(t *testing.T, url, key, body string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	response, err := newHTTPClient(t).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("reading the answer: %v", err)
	}
	if response.StatusCode != http.StatusOK {
		t.Fatalf("answer %s: %s", response.Status, got)
	}
	return string(got)
}
