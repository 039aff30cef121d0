package responses

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// The names that include can have, from the OpenAI document. Each is the path of a member, and
// begins with the type of an item.
const (
	includeFileResults    = "file_search_call.results"
	includeWebResults     = "web_search_call.results"
	includeWebSources     = "web_search_call.action.sources"
	includeInputImage     = "message.input_image.image_url"
	includeComputerImage  = "computer_call_output.output.image_url"
	includeCodeOutputs    = "code_interpreter_call.outputs"
	includeEncrypted      = "reasoning.encrypted_content" // a form that only the provider of the reasoning can read
	includeOutputLogprobs = "message.output_text.logprobs"
)

var includeNames = []string{
	includeFileResults, includeWebResults, includeWebSources, includeInputImage, includeComputerImage, includeCodeOutputs,
	includeEncrypted, includeOutputLogprobs,
}

// included are the names in the query of a request for something stored. A stored item is
// returned with all that is stored of it, so they only matter if something of it is not.
type included []string

// newIncluded reads the parameter include, which clients repeat, with or without brackets.
func newIncluded(query url.Values) (included, error) {
	names := append(slices.Clone(query["include"]), query["include[]"]...)
	for _, name := range names {
		if !slices.Contains(includeNames, name) {
			return nil, surface.InvalidValue("include", "include: %.100q is not something that can be included", name)
		}
	}
	return names, nil
}

// note names the parameter in the header of the answer if an item lacks what it asks for, or
// refuses the request if the org says so. It is called before the answer is written.
func (in included) note(w http.ResponseWriter, caller caller.Caller, items []map[string]any) error {
	for _, name := range in {
		if slices.ContainsFunc(items, func(it map[string]any) bool { return lacks(it, name) }) {
			return missing(w, caller, name)
		}
	}
	return nil
}

// noteStream does the same for a stream, which repeats what the first one had.
func (in included) noteStream(w http.ResponseWriter, caller caller.Caller, encrypted bool) error {
	for _, name := range in {
		if name != includeInputImage && name != includeCodeOutputs && (name != includeEncrypted || !encrypted) {
			return missing(w, caller, name)
		}
	}
	return nil
}

func missing(w http.ResponseWriter, caller caller.Caller, name string) error {
	if caller.Org.Runtime.DroppedParams == "refuse" {
		return fault.New(fault.Invalid, "unsupported_parameter", "include: %s is not stored; name it in the request that makes the response", name).In("include")
	}
	w.Header().Set("Turnpike-Dropped-Params", "include")
	return nil
}

// lacks reports whether an item has no value for a name of include, and one of its type could.
func lacks(it map[string]any, name string) bool {
	kind, member, _ := strings.Cut(name, ".")
	if it["type"] != kind {
		return false
	}
	switch name {
	case includeWebSources:
		action, _ := it["action"].(map[string]any)
		return action["type"] == "search" && action["sources"] == nil
	case includeComputerImage:
		output, _ := it["output"].(map[string]any)
		return output["image_url"] == nil
	case includeInputImage, includeOutputLogprobs:
		return partLacks(it["content"], name)
	}
	return it[member] == nil
}

// partLacks is lacks for the content of a message.
func partLacks(content any, name string) bool {
	parts, _ := content.([]any)
	return slices.ContainsFunc(parts, func(p any) bool {
		part, _ := p.(map[string]any)
		switch part["type"] {
		case "input_image":
			return name == includeInputImage && part["image_url"] == nil
		case "output_text":
			logprobs, _ := part["logprobs"].([]any)
			return name == includeOutputLogprobs && len(logprobs) == 0
		}
		return false
	})
}

// generic returns the items of an output as they are listed.
func generic(output []any) (items []map[string]any, err error) {
	raw, err := surface.Marshal(output)
	if err == nil {
		err = json.Unmarshal(raw, &items)
	}
	return items, err
}
