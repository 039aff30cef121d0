package fake

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// BareLoop is the reference of the loop cases: it makes the same model and tool calls
// over pooled connections and one MCP session that stays open. It has no keys, limits
// or records and little error handling.
type BareLoop struct {
	Provider string             // base URL, scheme://host:port
	Session  *mcp.ClientSession // with the server of the tools
	Tools    []any              // what the model is offered, in its dialect; see [SlowTools]

	// Execute returns the tool messages for the calls of a turn, in their
	// order. Nil = all calls at the same time.
	Execute func(context.Context, []LoopCall) []any

	client http.Client
}

// LoopCall is one tool call of a turn.
type LoopCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// SlowTools is the list of tools that offers the one of [SlowTool] to a model.
func SlowTools() []any {
	return []any{map[string]any{"type": "function", "function": map[string]any{"name": ToolName}}}
}

// NewBareLoop returns a loop with the tools of the MCP server at endpoint.
func NewBareLoop(ctx context.Context, provider, endpoint string) (*BareLoop, error) {
	pool := func() http.Client { return http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}} }
	calls := pool()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "turnpike-bench", Version: "1"}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: endpoint, HTTPClient: &calls}, nil)
	if err != nil {
		return nil, err
	}
	return &BareLoop{Provider: provider, Session: session, Tools: SlowTools(), client: pool()}, nil
}

// ServeHTTP calls the model and its tools until a turn has no calls, and passes that
// turn on.
func (l *BareLoop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var req map[string]any
	body, err := readAll(r)
	if err == nil {
		err = json.Unmarshal(body, &req)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	messages, _ := req["messages"].([]any)
	req["tools"] = l.Tools
	for {
		status, stream, err := l.turn(r.Context(), req)
		if err != nil {
			refuse(w, http.StatusBadGateway, err)
			return
		}
		calls := callsOf(stream)
		if len(calls) == 0 {
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(status)
			_, _ = w.Write(stream) // the caller may be gone
			return
		}
		messages = append(messages, map[string]any{"role": "assistant", "tool_calls": calls})
		messages = append(messages, l.execute(r.Context(), calls)...)
		req["messages"] = messages
	}
}

func (l *BareLoop) turn(ctx context.Context, body any) (int, []byte, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.Provider+"/v1/chat/completions", bytes.NewReader(b))
	if err != nil {
		return 0, nil, err
	}
	resp, err := l.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	stream, err := io.ReadAll(resp.Body)
	return resp.StatusCode, stream, err
}

// callsOf returns the calls of a turn. The scripted model sends each in one chunk.
func callsOf(stream []byte) (calls []LoopCall) {
	for line := range strings.SplitSeq(string(stream), "\n") {
		data, isData := strings.CutPrefix(line, "data: ")
		if !isData || !strings.Contains(data, `"tool_calls"`) {
			continue
		}
		var chunk struct {
			Choices []struct {
				Delta struct {
					ToolCalls []LoopCall `json:"tool_calls"`
				} `json:"delta"`
			} `json:"choices"`
		}
		if json.Unmarshal([]byte(data), &chunk) == nil && len(chunk.Choices) > 0 {
			calls = append(calls, chunk.Choices[0].Delta.ToolCalls...)
		}
	}
	return calls
}

func (l *BareLoop) execute(ctx context.Context, calls []LoopCall) []any {
	if l.Execute != nil {
		return l.Execute(ctx, calls)
	}
	results := make([]any, len(calls))
	var all sync.WaitGroup
	for i, c := range calls {
		all.Go(func() { results[i] = l.Call(ctx, c) })
	}
	all.Wait()
	return results
}

// Call makes one tool call and returns the tool message for it.
func (l *BareLoop) Call(ctx context.Context, c LoopCall) any {
	text := ""
	res, err := l.Session.CallTool(ctx, &mcp.CallToolParams{Name: c.Function.Name, Arguments: json.RawMessage(c.Function.Arguments)})
	if err != nil {
		text = err.Error()
	} else if t, isText := res.Content[0].(*mcp.TextContent); isText {
		text = t.Text
	}
	return map[string]any{"role": "tool", "tool_call_id": c.ID, "content": text}
}
