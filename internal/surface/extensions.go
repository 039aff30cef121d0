package surface

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// extensionsHeader asks for extensions. Its value is a list with commas between the names.
const extensionsHeader = "Turnpike-Extensions"

// The names of the extensions. Those of unbuiltExtensions are refused.
var (
	builtExtensions   = []string{"trace", "progress", "session"}
	unbuiltExtensions = []string{"files", "cost"}
)

// Extensions are what an answer has beyond its API, because the client or its org asks for it.
type Extensions struct {
	Trace    bool // the calls of the gateway's tools, at the end
	Progress bool // an event for each begin and end of such a call, in a live stream
	Session  bool // the id of the conversation
}

// extensionsOf returns the extensions of an answer: those of the header, and those that the org
// has by default. A run without the loop has none.
func extensionsOf(header http.Header, byDefault []string, relayed bool) (Extensions, error) {
	var names []string
	for _, line := range header.Values(extensionsHeader) {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		switch {
		case slices.Contains(unbuiltExtensions, name):
			return Extensions{}, fault.New(fault.Invalid, "unsupported_value", "the header turnpike-extensions: %s is not built yet; use %s",
				name, strings.Join(builtExtensions, ", ")).In("turnpike-extensions")
		case !slices.Contains(builtExtensions, name):
			return Extensions{}, fault.New(fault.Invalid, "invalid_value", "the header turnpike-extensions: there is no extension %.50q; use %s",
				name, strings.Join(builtExtensions, ", ")).In("turnpike-extensions")
		}
	}
	switch {
	case relayed && len(names) > 0:
		return Extensions{}, fault.New(fault.Invalid, "unsupported_value", "the header turnpike-extensions: the agent loop is off for this request, "+
			"and the answer of the provider is passed on without extensions; leave the header out").In("turnpike-extensions")
	case relayed:
		return Extensions{}, nil
	}
	has := func(name string) bool { return slices.Contains(names, name) || slices.Contains(byDefault, name) }
	return Extensions{Trace: has("trace"), Progress: has("progress"), Session: has("session")}, nil
}

// AskedExtensions returns the extensions of the answer to a request for a stored response.
func AskedExtensions(header http.Header, caller run.Caller) (Extensions, error) {
	return extensionsOf(header, caller.Org.Runtime.Extensions, false)
}

// Extra has the members of an answer's object, or of the last object of its stream, that are
// extensions. The zero value has none.
type Extra struct {
	SessionID json.RawMessage `json:"session_id,omitempty"` // null for a run of no conversation
	Calls     []TracedCall    `json:"agentic_tool_calls,omitzero"`
}

// TracedCall is a call of a gateway's tool.
type TracedCall struct {
	Key       string `json:"call_key"` // of the run: round.index
	Round     int    `json:"round"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
	Result    string `json:"result_content"`
	Outcome   string `json:"outcome"` // as event.Outcome; "" = it has not ended
}

// Extra returns the extensions of the answer's object.
func (a *Answer) Extra() (x Extra) {
	if a.Extensions.Session {
		x.SessionID = json.RawMessage("null")
		if a.Session != "" {
			x.SessionID, _ = Marshal(a.Session) // a string: cannot fail
		}
	}
	if a.Extensions.Trace {
		x.Calls = append([]TracedCall{}, a.calls...)
	}
	return x
}

// trace notes a call of a gateway's tool. The error is that of the account.
func (a *Answer) trace(e event.Event) error {
	if !a.Extensions.Trace {
		return nil
	}
	var c TracedCall
	switch e := e.(type) {
	case event.ToolStarted:
		c = TracedCall{Key: e.Key, Round: e.Round, Name: e.Name, Arguments: string(e.Arguments)}
	case event.ToolDone:
		c = TracedCall{Key: e.Key, Round: e.Round, Name: e.Name, Arguments: e.Arguments, Result: e.Text, Outcome: string(e.Outcome)}
	}
	const own = 128
	if err := a.Charge(own + len(c.Arguments) + len(c.Result)); err != nil {
		return err
	}
	i := slices.IndexFunc(a.calls, func(other TracedCall) bool { return other.Key == c.Key })
	if i < 0 {
		a.calls = append(a.calls, c)
		return nil
	}
	was := &a.calls[i] // begun, or begun again by the run's next owner
	was.Result, was.Outcome = c.Result, c.Outcome
	if was.Arguments == "" {
		was.Arguments = c.Arguments
	}
	return nil
}

// progress is an event for the begin or the end of a call of a gateway's tool.
type progress struct {
	Type  string       `json:"type"`
	Key   string       `json:"call_key"`
	Round int          `json:"round"`
	Name  string       `json:"tool_name"`
	Phase string       `json:"phase"` // calling or complete
	Data  progressData `json:"data"`
}

type progressData struct {
	Type      string  `json:"tool_type"`
	Arguments *string `json:"arguments,omitempty"` // while it is calling
	Content   *string `json:"content,omitempty"`   // when it is complete
	Outcome   string  `json:"outcome,omitempty"`
}

// progressType is the type of the event.
const progressType = "agentic_tool_call_progress"

// newProgress returns the extension of an event; nil if it has none.
func newProgress(e event.Event) *progress {
	switch e := e.(type) {
	case event.ToolStarted:
		arguments := string(e.Arguments)
		return &progress{progressType, e.Key, e.Round, e.Name, "calling", progressData{Type: "custom", Arguments: &arguments}}
	case event.ToolDone:
		return &progress{progressType, e.Key, e.Round, e.Name, "complete", progressData{Type: "custom", Content: &e.Text, Outcome: string(e.Outcome)}}
	}
	return nil
}
