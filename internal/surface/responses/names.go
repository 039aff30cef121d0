package responses

import (
	"encoding/json"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// The names of members that the API defines. A member that differs from one of them only by
// case is refused: the gateway would read it, and the provider another one.
var (
	bodyNames = []string{
		"background", "context_management", "conversation", "include", "input", "instructions", "max_output_tokens", "max_tool_calls",
		"metadata", "model", "moderation", "parallel_tool_calls", "previous_response_id", "prompt", "prompt_cache_key",
		"prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "stream",
		"stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user",
	}
	itemNames = []string{
		"type", "id", "role", "content", "call_id", "name", "namespace", "arguments", "input", "output", "summary", "encrypted_content",
		"status", "phase", "caller", "action", "actions", "approval_request_id", "approve", "code", "container_id", "environment",
		"error", "execution", "fingerprint", "operation", "outputs", "queries", "reason", "result", "results", "server_label", "tools",
	}
	partNames = []string{
		"type", "text", "refusal", "image_url", "file_id", "file_url", "file_data", "filename", "detail", "annotations", "logprobs", "input_audio",
	}
	toolNames = []string{
		"type", "name", "description", "parameters", "strict", "format", "tools", "server_label", "server_url", "server_description",
		"connector_id", "tunnel_id", "authorization", "headers", "require_approval", "allowed_tools", "container", "vector_store_ids",
		"filters", "environment",
	}
)

// saying are the members of an item that say what it is about, by its type. An item of another
// type says something in any member that is not one of naming.
var saying = map[string][]string{
	"message": {"content"}, "": {"content"}, "reasoning": {"encrypted_content", "content"}, "function_call": {"name", "call_id"}, "custom_tool_call": {"name", "call_id"},
	"function_call_output": {"output", "call_id"}, "custom_tool_call_output": {"output", "call_id"}, "item_reference": {},
	"web_search_call": {"action"}, "file_search_call": {"queries"}, "code_interpreter_call": {"code"}, "image_generation_call": {"result"},
}

// naming are the members with which an item only names another one.
var naming = []string{"type", "id", "role", "status"}

// isOnlyID reports whether an item has an id and nothing that it says. A provider puts what it
// stores under the id in its place.
func isOnlyID(it []byte) bool {
	kind := surface.Texts(it, "type")[0]
	says, known := saying[kind]
	hasID := kind == "item_reference"
	for name, v := range surface.Members(it) {
		switch {
		case name == "id":
			hasID = hasID || string(v) != "null"
		case surface.IsNothing(v), slices.Contains(naming, name), known && !slices.Contains(says, name):
		default:
			return false
		}
	}
	return hasID
}

// checkItem refuses an input item that a provider could read in another way than the gateway.
func checkItem(at string, it []byte) error {
	if err := surface.CheckNames(at, it, itemNames); err != nil {
		return err
	}
	types := 0
	for name := range surface.Members(it) {
		if name == "type" {
			types++
		}
	}
	if types > 1 {
		return severalTypes(at)
	}
	return nil
}

func severalTypes(at string) error {
	return fault.New(fault.Invalid, "invalid_value", "%s has more than one type", at).In(at + ".type")
}

// checkItems refuses what checkItem refuses, and items that only name what a provider stores.
func checkItems(of string, items json.RawMessage) error {
	typed, mayName := -1, false // the last item with a type; an item may be one that isOnlyID
	err := surface.CheckElements(of, items, itemNames, func(i int, name, value []byte) error {
		switch string(name) {
		case "type":
			if typed == i {
				return severalTypes(path(of, i))
			}
			typed, mayName = i, mayName || string(value) != `"message"`
		case "id":
			mayName = true
		}
		return nil
	})
	if err != nil || !mayName {
		return err
	}
	for i, it := range surface.Elements(items) {
		if isOnlyID(it) {
			return onlyAnID(path(of, i), it)
		}
	}
	return nil
}

// checkRelay refuses ids of what a provider stores, in a request that is passed on to it: the
// provider has one key for all orgs, and would give one org what it stores of another.
func checkRelay(members []surface.Member) error {
	for _, m := range members {
		switch m.Name {
		case "previous_response_id", "conversation":
			if v := string(m.Value); v != "null" && v != `""` {
				return onlyTheLoop(m.Name)
			}
		case "prompt":
			if string(m.Value) != "null" {
				return fault.New(fault.Invalid, "unsupported_parameter", "prompt: the gateway has no stored prompts, and does not pass on ids of what a provider stores; "+
					"send instructions and input").In("prompt.id")
			}
		case "input":
			if err := checkItems(m.Name, m.Value); err != nil { // a text has no items
				return err
			}
		}
	}
	return nil
}

// onlyAnID refuses an item of a relayed request that only names what a provider stores.
func onlyAnID(at string, it []byte) error {
	if kindOf(it) == "reasoning" {
		return fault.New(fault.Invalid, "unsupported_parameter", "%s: reasoning without encrypted_content only names what the provider stores, for all orgs; "+
			`leave it out, or ask for it with "include": ["reasoning.encrypted_content"]`, at).In(at)
	}
	return onlyTheLoop(at)
}
