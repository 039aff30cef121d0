package fake

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// maxLatency bounds what a script may ask a server to wait.
const maxLatency = 10 * time.Second

// ToolName is the one tool of [SlowTool].
const ToolName = "slow"

// callsPerRun spaces the ids of calls, so that an id tells its run.
const callsPerRun = 1000

// Script is what the client wants the model to do in one run. It travels as
// the text of the user message, in JSON.
type Script struct {
	Run       int `json:"run"`        // tells runs apart in the ledgers
	LatencyMS int `json:"latency_ms"` // of each model call, from request to first byte

	// Rounds has, for each round with tools, how many milliseconds each of its
	// tool calls takes. After the last one the model answers with text.
	Rounds [][]int `json:"rounds"`
}

// Text is the script as the text of a user message.
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

// Final is the text that the model ends the run with.
func (s Script) Final() string { return fmt.Sprintf("Run %d is done.", s.Run) }

// Result is the text of the tool's answer to the call of that id.
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

// parse finds the script, the rounds behind it and the results of the last one.
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
		return s, 0, nil, fmt.Errorf("user message is no script: %w", err)
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

// offersTool reports whether the request brings the slow tool.
func (c conversation) offersTool() bool {
	for _, t := range c.Tools {
		if t.Function.Name == ToolName {
			return true
		}
	}
	return false
}

// text is a message's content, whether written as a string or as text parts.
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
