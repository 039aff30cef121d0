package fake

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// post returns status, content type and body of an answer.
func post(t *testing.T, url, key string, body []byte) (int, string, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header.Get("Content-Type"), string(b)
}

func TestUpstreamAndBaseline(t *testing.T) {
	up := httptest.NewServer(Upstream("provider-key"))
	defer up.Close()
	base, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(Baseline(base, "provider-key"))
	defer proxy.Close()
	defer up.CloseClientConnections() // those that the proxy keeps
	small, stream, large := RequestBody("s1", 0, false), RequestBody("s2", 0, true), RequestBody("s3", 100_000, false)
	sum := func(body []byte) Sum { s, _, _ := ReadRequest(body); return s }
	for _, tt := range []struct {
		name, server, key string
		body              []byte
		status            int
		kind, want        string
	}{
		{"the upstream answers a small body", up.URL, "provider-key", small, 200, "application/json", string(JSONAnswer(sum(small)))},
		{"the upstream answers with a stream", up.URL, "provider-key", stream, 200, "text/event-stream", string(StreamAnswer(sum(stream)))},
		{"the upstream refuses a client's key", up.URL, "client-key", small, 401, "application/json", ""},
		{"the upstream refuses a foreign body", up.URL, "provider-key", []byte("{}"), 400, "application/json", ""},
		{"the baseline swaps the key", proxy.URL, "client-key", small, 200, "application/json", string(JSONAnswer(sum(small)))},
		{"the baseline passes a large body on", proxy.URL, "client-key", large, 200, "application/json", string(JSONAnswer(sum(large)))},
		{"the baseline passes a stream on", proxy.URL, "client-key", stream, 200, "text/event-stream", string(StreamAnswer(sum(stream)))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, kind, got := post(t, tt.server+ChatPath, tt.key, tt.body)
			if status != tt.status || kind != tt.kind {
				t.Errorf("status %d, content type %q; want %d, %q", status, kind, tt.status, tt.kind)
			}
			if tt.want != "" && got != tt.want {
				t.Errorf("answer %.200s, want %.200s", got, tt.want)
			}
		})
	}
	body := ResponsesBody("s4")
	if status, _, got := post(t, proxy.URL+ResponsesPath, "client-key", body); status != 200 || got != string(ResponsesAnswer(sum(body))) || !json.Valid([]byte(got)) || !json.Valid(body) {
		t.Errorf("a response: status %d, %s", status, got)
	}
}

// request is a chat completion request after the given number of rounds.
func request(t *testing.T, s Script, stream bool, tools string, rounds int) []byte {
	t.Helper()
	messages := []map[string]any{{"role": "user", "content": s.Text()}}
	for round := range rounds {
		messages = append(messages, map[string]any{"role": "assistant", "tool_calls": []any{map[string]any{}}})
		for i := range s.Rounds[round] {
			id := s.CallID(round, i)
			messages = append(messages, map[string]any{"role": "tool", "tool_call_id": ProviderID(id), "content": Result(id)})
		}
	}
	b, err := json.Marshal(map[string]any{"model": ModelName, "stream": stream, "messages": messages, "tools": json.RawMessage(tools)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const slowTools = `[{"type":"function","function":{"name":"slow","parameters":{"type":"object"}}}]`

func TestScriptedModel(t *testing.T) {
	srv := httptest.NewServer(ScriptedModel())
	defer srv.Close()
	s := Script{Run: 7, Rounds: [][]int{{50, 40}, {30}}}
	for _, tt := range []struct {
		name   string
		body   []byte
		status int
		want   []string
	}{
		{"first it calls the first round's tools", request(t, s, true, slowTools, 0), 200,
			[]string{`{\"ms\":50,\"id\":7000}`, `{\"ms\":40,\"id\":7001}`, `"finish_reason":"tool_calls"`, "data: [DONE]"}},
		{"then the second round's", request(t, s, true, slowTools, 1), 200,
			[]string{`{\"ms\":30,\"id\":7002}`, `"id":"call_7002"`, `"finish_reason":"tool_calls"`}},
		{"then it answers, even without tools", request(t, s, true, "[]", 2), 200,
			[]string{"Run 7 is done.", `"finish_reason":"stop"`, "data: [DONE]"}},
		{"it does not call a tool that it was not offered", request(t, s, true, "[]", 0), 400, []string{`offers no tool`}},
		{"it only streams", request(t, s, false, slowTools, 0), 400, []string{"only streams"}},
		{"it wants a script", []byte(`{"stream":true,"messages":[{"role":"user","content":"Hi!"}]}`), 400, []string{"not a script"}},
		{"it wants a user message", []byte(`{"stream":true}`), 400, []string{"no user message"}},
		{"it does not wait for ever", request(t, Script{LatencyMS: 1 << 30}, true, slowTools, 0), 400, []string{"latency"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, _, got := post(t, srv.URL+ChatPath, "", tt.body)
			if status != tt.status {
				t.Errorf("status %d, want %d: %s", status, tt.status, got)
			}
			for _, part := range tt.want {
				if !strings.Contains(got, part) {
					t.Errorf("no %q in %s", part, got)
				}
			}
			for event := range strings.SplitSeq(got, "\n\n") {
				data, isData := strings.CutPrefix(event, "data: {")
				if isData && !json.Valid([]byte("{"+data)) {
					t.Errorf("event is no JSON: %s", event)
				}
			}
		})
	}
}

func TestScriptedModelKeepsALedger(t *testing.T) {
	srv := httptest.NewServer(ScriptedModel())
	defer srv.Close()
	s := Script{Run: 3, Rounds: [][]int{{5, 5}}}
	post(t, srv.URL+ChatPath, "", request(t, s, true, slowTools, 0))
	post(t, srv.URL+ChatPath, "", request(t, s, true, slowTools, 1))
	want := `[{"run":3,"round":0,"results":null},{"run":3,"round":1,"results":[` +
		`{"call_id":"call_3000","text":"slept for call 3000"},{"call_id":"call_3001","text":"slept for call 3001"}]}]`
	if _, _, got := post(t, srv.URL+"/ledger", "", nil); strings.TrimSpace(got) != want {
		t.Errorf("ledger %s, want %s", got, want)
	}
	if _, _, got := post(t, srv.URL+"/ledger", "", nil); strings.TrimSpace(got) != "[]" {
		t.Errorf("a taken ledger still has %s", got)
	}
}

func TestContentMayBeParts(t *testing.T) {
	for content, want := range map[string]string{
		`"a"`: "a", `[{"type":"text","text":"a"},{"type":"text","text":"b"}]`: "ab", `null`: "", `7`: "",
	} {
		if got := text(json.RawMessage(content)); got != want {
			t.Errorf("text(%s) = %q, want %q", content, got, want)
		}
	}
}

func TestSlowToolRunsCallsAtTheSameTime(t *testing.T) {
	srv := httptest.NewServer(SlowTool())
	defer srv.Close()
	// The client's connections end before the server's Close waits for them.
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{
		Endpoint: srv.URL + "/mcp", HTTPClient: &http.Client{Transport: transport},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	tools, err := session.ListTools(t.Context(), nil)
	if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != ToolName || !tools.Tools[0].Annotations.ReadOnlyHint {
		t.Fatalf("tools %+v, error %v", tools, err)
	}
	const calls = 4
	errs := make(chan error, calls)
	for id := range calls {
		go func() { errs <- callSlow(t.Context(), session, 100, id) }()
	}
	for range calls {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	var ledger []ToolCall
	_, _, b := post(t, srv.URL+"/ledger", "", nil)
	if err := json.Unmarshal([]byte(b), &ledger); err != nil || len(ledger) != calls {
		t.Fatalf("ledger %s, error %v", b, err)
	}
	lastStart, firstEnd := ledger[0].Start, ledger[0].End
	for _, c := range ledger {
		lastStart, firstEnd = max(lastStart, c.Start), min(firstEnd, c.End)
		if slept := time.Duration(c.End - c.Start); slept < 100*time.Millisecond {
			t.Errorf("call %d slept %v, want 100 ms", c.ID, slept)
		}
	}
	if lastStart >= firstEnd {
		t.Error("the server ran the calls one after another")
	}
}

func callSlow(ctx context.Context, s *mcp.ClientSession, ms, id int) error {
	res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: ToolName, Arguments: map[string]any{"ms": ms, "id": id}})
	if err != nil {
		return err
	}
	if t, ok := res.Content[0].(*mcp.TextContent); !ok || t.Text != Result(id) || res.IsError {
		return fmt.Errorf("call %d: result %+v", id, res)
	}
	return nil
}

func TestServeEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, Upstream("k"), w) }()
	addr, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if status, _, _ := post(t, "http://"+strings.TrimSpace(addr)+ChatPath, "k", RequestBody("s1", 0, false)); status != 200 {
		t.Errorf("status %d", status)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
