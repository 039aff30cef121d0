package chat

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// The names of members that the API defines. A member that differs from one of them only by
// case is refused: the gateway would read it, and the provider another one.
var (
	bodyNames = []string{
		"agent_permission", "audio", "context_management", "enable_code_execution", "files", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs", "max_completion_tokens", "max_tokens", "max_tool_rounds",
		"messages", "metadata", "modalities", "model", "moderation", "n", "parallel_tool_calls", "prediction", "presence_penalty",
		"previous_response_id", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning_effort",
		"response_format", "safety_identifier", "seed", "service_tier", "session_id", "stop", "store", "stream", "stream_options", "temperature",
		"tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity", "web_search_options",
	}
	messageNames = []string{"role", "name", "content", "refusal", "tool_call_id", "tool_calls", "cache_control", "audio", "function_call"}
	partNames    = []string{"type", "text", "refusal", "image_url", "input_audio", "file", "cache_control"}
	toolNames    = []string{"type", "function", "custom", "cache_control"}
)

// checkIDs refuses ids of what a provider stores: it has one key for all orgs, and would give
// one org what it stores of another.
func checkIDs(members []surface.Member) error {
	for _, m := range members {
		switch m.Name {
		case "previous_response_id":
			if v := string(m.Value); v != "null" && v != `""` {
				return stored(m.Name)
			}
		case "messages":
			if err := surface.CheckElements(m.Name, m.Value, messageNames, checkMessageMember); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkMessageMember refuses a member of a message that has the id of an answer that a provider has spoken.
func checkMessageMember(i int, name, value []byte) error {
	if string(name) != "audio" {
		return nil
	}
	for inner, v := range surface.Members(value) {
		if strings.EqualFold(inner, "id") && string(v) != "null" {
			return stored(fmt.Sprintf("messages[%d].audio.%s", i, inner))
		}
	}
	return nil
}

// functionNames returns the names of the functions among the tools of a body.
func functionNames(members []surface.Member) (names []string) {
	var tools json.RawMessage
	for _, m := range members { // the last of a name counts
		if m.Name == "tools" {
			tools = m.Value
		}
	}
	for _, one := range surface.Elements(tools) {
		var w wireTool
		if json.Unmarshal(one, &w) == nil && (w.Type == "function" || w.Type == "") && w.Function.Name != "" {
			names = append(names, w.Function.Name)
		}
	}
	return names
}

// stored refuses the id of what a provider stores.
func stored(at string) error {
	return fault.New(fault.Invalid, "unsupported_parameter", "%s: the gateway does not pass on ids of what a provider stores, because all orgs share the provider's key; "+
		"send the text instead", at).In(at)
}
