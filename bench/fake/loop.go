package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxLatency bounds what a script may ask a server to wait.
const maxLatency = 10 * time.Second

// ToolName is the one tool of [SlowTool].
const ToolName = "slow"

// callsPerRun is the number of call ids of a run: the id of a call gives its run.
const callsPerRun = 1000

// Script is what the model does in one run. The client sends it as JSON in the user
// message.
type Script struct {
	Run       int `json:"run"`        // number of the run, in the ledgers
	LatencyMS int `json:"latency_ms"` // of each model call, from request to first byte

	// Rounds has, for each round with tools, how many milliseconds each of its
	// tool calls takes. After the last one the model answers with text.
	Rounds [][]int `json:"rounds"`
}

// Text returns the script as the text of a user message.
func (s Script) Text() string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // numbers only
	}
	return string(b)
}

// CallID returns the id, in the tool's arguments, of call i of a round.
func (s Script) CallID(round, i int) int {
	n := s.Run * callsPerRun
	for _, calls := range s.Rounds[:round] {
		n += len(calls)
	}
	return n + i
}

// RunOf returns the run that the call of that id belongs to.
func RunOf(id int) int { return id / callsPerRun }

// Final returns the text of the last turn.
func (s Script) Final() string { return fmt.Sprintf("Run %d is done.", s.Run) }

// Result returns the text of the tool's result of the call of that id.
func Result(id int) string { return fmt.Sprintf("slept for call %d", id) }

// conversation is what the scripted model reads of a request.
type conversation struct {
	Stream   bool `json:"stream"`
	Messages []struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		ToolCallID string          `json:"tool_call_id"`
		ToolCalls  []struct{}      `json:"tool_calls"`
	} `json:"messages"`
	Tools []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`
}

// ToolResult is one tool message of a model request.
type ToolResult struct {
	CallID string `json:"call_id"`
	Text   string `json:"text"`
}

// parse returns the script, the number of rounds made, and the results of the last
// round.
func (c conversation) parse() (s Script, round int, results []ToolResult, err error) {
	found := false
	for _, m := range c.Messages {
		switch {
		case m.Role == "user":
			err = errors.Join(err, json.Unmarshal([]byte(text(m.Content)), &s))
			found = true
		case len(m.ToolCalls) > 0:
			round, results = round+1, nil
		case m.Role == "tool":
			results = append(results, ToolResult{m.ToolCallID, text(m.Content)})
		}
	}
	switch {
	case err != nil:
		return s, 0, nil, fmt.Errorf("user message is not a script: %w", err)
	case !found:
		return s, 0, nil, errors.New("no user message")
	case round > len(s.Rounds):
		return s, 0, nil, fmt.Errorf("round %d of %d", round, len(s.Rounds))
	case s.latency() < 0 || s.latency() > maxLatency:
		return s, 0, nil, fmt.Errorf("latency of %v", s.latency())
	}
	return s, round, results, nil
}

func (s Script) latency() time.Duration { return time.Duration(s.LatencyMS) * time.Millisecond }

// offersTool reports whether the request offers the slow tool.
func (c conversation) offersTool() bool {
	for _, t := range c.Tools {
		if t.Function.Name == ToolName {
			return true
		}
	}
	return false
}

// text returns the content of a message, which is a string or a list of text parts.
func text(content json.RawMessage) string {
	var s string
	if json.Unmarshal(content, &s) == nil {
		return s
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &parts) != nil {
		return ""
	}
	for _, p := range parts {
		s += p.Text
	}
	return s
}

// ModelCall is one entry of a scripted model's ledger.
type ModelCall struct {
	Run     int          `json:"run"`
	Round   int          `json:"round"`   // 0-based
	Results []ToolResult `json:"results"` // in the order of the request
}

// ScriptedModel returns a provider that answers as the user message of the request, a
// [Script], says: it waits, then streams the tool calls of the next round, or the
// final text when all rounds have their results.
//
// POST /ledger takes the ledger ([]ModelCall).
func ScriptedModel() http.Handler {
	var seen Ledger[ModelCall]
	mux := http.NewServeMux()
	mux.Handle("POST /ledger", &seen)
	mux.HandleFunc("POST "+ChatPath, func(w http.ResponseWriter, r *http.Request) {
		arrived := time.Now()
		body, err := readAll(r)
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		s, round, results, err := readTurn(body)
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		seen.Add(ModelCall{s.Run, round, results})
		pause := time.NewTimer(time.Until(arrived.Add(s.latency())))
		defer pause.Stop()
		select {
		case <-pause.C:
			writeEvents(w, turn(s, round))
		case <-r.Context().Done():
		}
	})
	return mux
}

func readTurn(body []byte) (s Script, round int, results []ToolResult, err error) {
	var c conversation
	if err := json.Unmarshal(body, &c); err != nil {
		return s, 0, nil, err
	}
	if s, round, results, err = c.parse(); err != nil {
		return s, 0, nil, err
	}
	switch {
	case !c.Stream:
		return s, 0, nil, errors.New("this model only streams")
	case round < len(s.Rounds) && !c.offersTool():
		return s, 0, nil, fmt.Errorf("the request offers no tool %q", ToolName)
	}
	return s, round, results, nil
}

// turn returns the stream of that round.
func turn(s Script, round int) []byte {
	b := appendChunk(nil, `{"role":"assistant","content":""}`, "")
	reason := "stop"
	if round == len(s.Rounds) {
		b = appendChunk(b, fmt.Sprintf(`{"content":%q}`, s.Final()), "")
	} else {
		reason = "tool_calls"
		for i, ms := range s.Rounds[round] {
			b = appendChunk(b, callDelta(i, s.CallID(round, i), ms), "")
		}
	}
	b = appendChunk(b, "{}", reason)
	return append(b, "data: [DONE]\n\n"...)
}

func callDelta(index, id, ms int) string {
	args := fmt.Sprintf(`{"ms":%d,"id":%d}`, ms, id)
	return fmt.Sprintf(`{"tool_calls":[{"index":%d,"id":%q,"type":"function","function":{"name":%q,"arguments":%q}}]}`,
		index, ProviderID(id), ToolName, args)
}

// ProviderID returns the id that the model gives the tool call of that id.
func ProviderID(id int) string { return fmt.Sprintf("call_%d", id) }

func appendChunk(b []byte, delta, reason string) []byte {
	finish := "null"
	if reason != "" {
		finish = `"` + reason + `"`
	}
	return fmt.Appendf(b, `data: {"id":"chatcmpl-script","object":"chat.completion.chunk","created":1750000000,`+
		`"model":"`+ModelName+`","choices":[{"index":0,"delta":%s,"finish_reason":%s}]}`+"\n\n", delta, finish)
}

// ToolCall is one entry of the slow tool's ledger. Times are Unix nanoseconds, taken
// in the handler.
type ToolCall struct {
	ID    int   `json:"id"`
	Start int64 `json:"start"`
	End   int64 `json:"end"`
}

type slowArgs struct {
	MS int `json:"ms" jsonschema:"how long to sleep, in milliseconds"`
	ID int `json:"id" jsonschema:"the call's number, repeated by the result"`
}

// SlowTool returns an MCP server over streamable HTTP, at /mcp, with one tool,
// [ToolName], that sleeps. It is annotated as read-only.
//
// POST /ledger takes the ledger of finished calls ([]ToolCall).
func SlowTool() http.Handler {
	var seen Ledger[ToolCall]
	srv := mcp.NewServer(&mcp.Implementation{Name: "turnpike-bench", Version: "1"}, nil)
	mcp.AddTool(srv, &mcp.Tool{
		Name:        ToolName,
		Description: "Sleeps for a while.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true},
	}, func(ctx context.Context, _ *mcp.CallToolRequest, args slowArgs) (*mcp.CallToolResult, any, error) {
		start := time.Now()
		if err := sleep(ctx, time.Duration(args.MS)*time.Millisecond); err != nil {
			return nil, nil, err
		}
		seen.Add(ToolCall{args.ID, start.UnixNano(), time.Now().UnixNano()})
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: Result(args.ID)}}}, nil, nil
	})
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, nil))
	mux.Handle("POST /ledger", &seen)
	return mux
}

func sleep(ctx context.Context, d time.Duration) error {
	if d < 0 || d > maxLatency {
		return fmt.Errorf("cannot sleep for %v", d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
