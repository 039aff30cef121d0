package conformance

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestInstruments shows that the instruments themselves work, without a gateway:
// what the other tests find is then the gateway's doing.
func TestInstruments(t *testing.T) {
	s := newSite(t)
	clients := []client{nodeClient{node: s.node, script: "chat.mjs"}, goClient{}}
	t.Run("the scripted model answers official clients", func(t *testing.T) {
		u := startUpstream(t, clientLoopScript)
		r := &rig{upstream: u}
		eachWay(t, clients, func(t *testing.T, c client, stream bool) {
			question := u.ask(stream)
			question.Request["tools"] = []object{clientTool(localTimeTool)}
			r.wantRelayed(t, c, question)
		})
	})
	t.Run("the scripted model cuts its stream anywhere", func(t *testing.T) {
		u := startUpstream(t, func(chatRequest) turn { return turn{Text: unicodeText, Piece: 1} })
		for _, c := range clients {
			wantEqual(t, "text in "+c.name(), unicodeText, answer(t, c, u.ask(true)).Text)
		}
	})
	t.Run("the scripted model fails as told", func(t *testing.T) {
		u := startUpstream(t, func(chatRequest) turn { return turn{Status: 429, Message: "slower", RetryAfter: "7"} })
		for _, c := range clients {
			question := u.ask(false)
			question.NoRetries = true
			got := run(t, c, question).Error
			if got == nil || got.Status != 429 || got.RetryAfter != "7" || !strings.Contains(got.Message, "slower") {
				t.Errorf("%s raised %+v", c.name(), got)
			}
		}
	})
	t.Run("the runTools helper finds its way", func(t *testing.T) {
		u := startUpstream(t, clientLoopScript)
		eachWay(t, []client{nodeClient{node: s.node, script: "runtools.mjs"}}, func(t *testing.T, c client, stream bool) {
			wantEqual(t, "answer", "It is 12:34 in Łódź – <old town>.", answer(t, c, u.ask(stream)).Text)
		})
	})
	t.Run("the proxy records and holds calls of server-everything", s.testProxy)
}

// ask is a question straight to the upstream, which has its own key.
func (u *upstream) ask(stream bool) ask {
	r := &rig{gateway: u.URL}
	question := r.ask("gpt-test", "What time is it in Łódź?", stream)
	question.Key, question.Hash = upKey, true
	return question
}

func (s *site) testProxy(t *testing.T) {
	p := startProxy(t, s.everything)
	held := p.hold(t, "get-sum")
	session := mcpPost(t, p, "", 1, "initialize", object{
		"protocolVersion": "2025-06-18", "capabilities": object{}, "clientInfo": object{"name": "conformance", "version": "1"},
	}).header.Get("Mcp-Session-Id")
	got := mcpPost(t, p, session, 2, "tools/call", object{"name": "echo", "arguments": object{"message": "20 22"}})
	wantEqual(t, "echo's text", "Echo: 20 22", got.text)
	sum := make(chan mcpAnswer, 1)
	go func() {
		sum <- mcpPost(t, p, session, 3, "tools/call", object{"name": "get-sum", "arguments": object{"a": 20, "b": 22}})
	}()
	await(t, "the held call", held.arrived)
	held.Open()
	wantEqual(t, "get-sum's text", "The sum of 20 and 22 is 42.", await(t, "its answer", sum).text)
	(&rig{proxy: p}).wantToolCalls(t, "echo", `{"message":"20 22"}`, "get-sum", `{"a":20,"b":22}`)
}

type mcpAnswer struct {
	header http.Header
	text   string // of the first content part of a tool result
}

// mcpPost sends one JSON-RPC request to the proxy and reads the answer, which
// comes as an event stream. Failures are reported as the answer's text.
func mcpPost(t *testing.T, p *proxy, session string, id int, method string, params object) mcpAnswer {
	body := marshal(object{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+"/mcp", strings.NewReader(string(body)))
	if err != nil {
		return mcpAnswer{text: err.Error()}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		request.Header.Set("Mcp-Session-Id", session)
	}
	response, err := newHTTPClient(t).Do(request)
	if err != nil {
		return mcpAnswer{text: err.Error()}
	}
	defer func() { _ = response.Body.Close() }()
	return mcpAnswer{header: response.Header, text: resultText(response)}
}

func resultText(response *http.Response) string {
	var found string
	lines := &lineWriter{onLine: func(line []byte) {
		var answer struct {
			Result struct {
				Content []struct{ Text string }
			}
		}
		data, ok := strings.CutPrefix(string(line), "data: ")
		if ok && json.Unmarshal([]byte(data), &answer) == nil && len(answer.Result.Content) > 0 {
			found = answer.Result.Content[0].Text
		}
	}}
	if _, err := io.Copy(lines, response.Body); err != nil {
		return fmt.Sprintf("reading the answer: %v", err)
	}
	return found
}
