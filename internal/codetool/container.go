package codetool

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/tool"
)

// options are what a request says of the container of its calls.
type options struct {
	Container string          `json:"container,omitempty"` // id; "" = that of the run, or of its session
	Files     []file.Required `json:"files,omitempty"`     // that the run is to make
	Inputs    []file.Input    `json:"inputs,omitempty"`    // that the run is given; of the hosted tool of a request only their ids are known
}

// ReadHosted reads the members of a hosted tool code_interpreter, a JSON object, and returns them as [tool.Call].Options. The error is a
// [*catalog.OptionError] for a value that the sandbox cannot honour. Members that are null say nothing.
func ReadHosted(raw json.RawMessage) (json.RawMessage, error) {
	var o options
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, &catalog.OptionError{Reason: "must be an object"}
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		value := members[name]
		switch {
		case string(value) == "null":
		case name == "container":
			if json.Unmarshal(value, &o.Container) == nil && o.Container != "" {
				continue
			}
			var err error
			if o.Inputs, err = readContainer(value); err != nil {
				return nil, err
			}
		case name == "allowed_callers":
			var callers []string
			if json.Unmarshal(value, &callers) != nil || slices.ContainsFunc(callers, func(c string) bool { return c != "direct" }) {
				return nil, &catalog.OptionError{Member: name, Reason: `the model calls the tool itself; use ["direct"], or leave it out`}
			}
		default:
			return nil, &catalog.OptionError{Member: name, Reason: "the gateway runs the code, and does not know this member; leave it out"}
		}
	}
	return json.Marshal(o)
}

// readContainer reads a container that the gateway makes for the request, and returns the files that it is to have.
func readContainer(raw json.RawMessage) (inputs []file.Input, err error) {
	const at = "container"
	members := map[string]json.RawMessage{}
	if json.Unmarshal(raw, &members) != nil {
		return nil, &catalog.OptionError{Member: at, Reason: `must be the id of a container, or {"type": "auto"}`}
	}
	var kind string
	if json.Unmarshal(members["type"], &kind) != nil || kind != "auto" {
		return nil, &catalog.OptionError{Member: at + ".type", Reason: "must be auto"}
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		why := "the gateway runs the code, and does not know this member; leave it out"
		switch value := string(members[name]); {
		case name == "type", value == "null", value == "[]" && (name == "file_ids" || name == "skills"):
			continue
		case name == "network_policy":
			var w struct{ Type string }
			if json.Unmarshal(members[name], &w) == nil && w.Type == "disabled" {
				continue
			}
			why = `code has no network; use {"type": "disabled"}, or leave it out`
		case name == "memory_limit":
			why = "the sandbox of the gateway has its own memory limit, which a request cannot change; leave it out"
		case name == "file_ids":
			var ids []string
			if json.Unmarshal(members[name], &ids) == nil && len(ids) <= file.MaxGiven {
				for _, id := range ids {
					inputs = append(inputs, file.Input{ID: id})
				}
				continue
			}
			why = fmt.Sprintf("must be a list of at most %d ids of files", file.MaxGiven)
		}
		return nil, &catalog.OptionError{Member: at + "." + name, Reason: why}
	}
	return inputs, nil
}

// ContainerAsked returns the id of the container that the request of a call names; "" = none.
func ContainerAsked(c tool.Call) string {
	var o options
	_ = json.Unmarshal(c.Options, &o) // ReadHosted has made them
	return o.Container
}

// requiredBy returns the files that a request requires, by what it says of all calls.
func requiredBy(raw json.RawMessage) []file.Required {
	var o options
	_ = json.Unmarshal(raw, &o) // the surface has written it
	return o.Files
}
