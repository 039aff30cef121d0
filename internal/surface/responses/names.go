package responses

import (
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
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
	kind := kindOf(it)
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

// checkItem refuses an input item that a provider could read in another way than the gateway. of[i] is its place.
// named says that the item has an id, or is a reference: it may be one that [isOnlyID].
func checkItem(of string, i int, it []byte) (named bool, err error) {
	types := 0
	for name, v := range jsonscan.Members(jsonscan.TrimSpace(it)) {
		if jsonscan.Respelled(name, itemNames) != "" { // the place is only formatted for an error
			return false, surface.CheckName(path(of, i), name, itemNames)
		}
		switch string(name) {
		case "type":
			types++
			named = named || jsonscan.Text(v) == "item_reference"
		case "id":
			named = true
		}
	}
	if types > 1 {
		at := path(of, i)
		return false, fault.New(fault.Invalid, "invalid_value", "%s has more than one type", at).In(at + ".type")
	}
	return named, nil
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
			for i, it := range surface.Elements(m.Value) { // none of a text
				named, err := checkItem(m.Name, i, it)
				if err != nil {
					return err
				}
				if named && isOnlyID(it) {
					return onlyAnID(path(m.Name, i), it)
				}
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
