package responses

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
)

// maxReplayedLists is how many servers the lists of tools in an input can have.
const maxReplayedLists = 256

// replayMCPListTools notes that the conversation has listed the tools of a server: the
// client sends the item back. The model does not get the item.
func replayMCPListTools(req *run.Request, at string, raw json.RawMessage) error {
	var w struct {
		ServerLabel string `json:"server_label"`
	}
	switch err := json.Unmarshal(raw, &w); {
	case err != nil:
		return fault.New(fault.Invalid, "invalid_type", "%s is not an item of type mcp_list_tools", at).In(at)
	case !validLabel(w.ServerLabel) || w.ServerLabel == "":
		return fault.New(fault.Invalid, "invalid_value", "%s.server_label is not a label of a server", at).In(at + ".server_label")
	case slices.Contains(req.Listed, w.ServerLabel):
	case len(req.Listed) == maxReplayedLists:
		return fault.New(fault.Invalid, "invalid_value", "%s: the input has lists of the tools of more than %d servers", at, maxReplayedLists).In(at)
	default:
		req.Listed = append(req.Listed, w.ServerLabel)
	}
	return nil
}

// wireMCPCall is an item of type mcp_call that the client sends back.
type wireMCPCall struct {
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    *string         `json:"output"`
	Error     json.RawMessage `json:"error"`
}

// replayMCPCall returns a call that was made for an earlier response, and its result. It is
// never made again. turn is the number of the model call that asked for it.
func replayMCPCall(at string, raw json.RawMessage, turn int) ([]item.Item, error) {
	var w wireMCPCall
	switch err := json.Unmarshal(raw, &w); {
	case err != nil:
		return nil, fault.New(fault.Invalid, "invalid_type", "%s: %s", at, "id, name, arguments and output must be strings").In(at)
	case w.ID == "":
		return nil, fault.New(fault.Invalid, "missing_required_parameter", "%s has no id", at).In(at + ".id")
	case w.Name == "":
		return nil, fault.New(fault.Invalid, "missing_required_parameter", "%s has no name", at).In(at + ".name")
	}
	call := item.NewCall(w.ID, functionName(w.Name), cmp.Or(w.Arguments, "{}"))
	call.Turn = turn
	var result item.Item
	switch failure := mcpFailure(w.Error); {
	case failure != "":
		result = item.NewResult(w.ID, "Tool call failed: "+failure, true)
	case w.Output != nil:
		result = item.NewResult(w.ID, *w.Output, false)
	default: // every call has a result
		result = item.NewResult(w.ID, "Tool call failed: it has no recorded result.", true)
	}
	return []item.Item{call, result}, nil
}

// functionName returns the server's name of a tool as the name of a function.
func functionName(name string) string {
	const longest = 64
	name = strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
	return name[:min(len(name), longest)]
}

// mcpFailure returns the text of the error of a call: a string, or an object with a message
// or with content; "" = there is none.
func mcpFailure(raw json.RawMessage) string {
	var text string
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &text) == nil {
		return text
	}
	var w struct {
		Message string          `json:"message"`
		Content json.RawMessage `json:"content"`
	}
	_ = json.Unmarshal(raw, &w) // another form is passed on as it is
	var parts []mcpErrorPart
	switch {
	case w.Message != "":
		return w.Message
	case json.Unmarshal(w.Content, &parts) == nil:
		var texts []string
		for _, p := range parts {
			texts = append(texts, p.Text)
		}
		return cmp.Or(strings.Join(texts, "\n"), string(w.Content))
	}
	return string(raw)
}
