package surface

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// extensionsHeader asks for extensions. Its value is a list with commas between the names.
const extensionsHeader = "Turnpike-Extensions"

// The names of the extensions.
var (
	builtExtensions = []string{"trace", "progress", "session", "cost", "files"}
)

// Extensions are what an answer has beyond its API, because the client or its org asks for it.
type Extensions struct {
	Trace    bool // the calls of the gateway's tools, at the end
	Progress bool // events of a stream about such calls while they happen
	Session  bool // the id of the conversation
	Cost     bool // what the run cost, at the end
	Files    bool // the files that its tools have made, at the end
}

// noProgress refuses the extension progress, for an API whose official clients accept no events
// that the API does not have.
func noProgress() *fault.Error {
	return fault.New(fault.Invalid, "unsupported_value", "the header turnpike-extensions: progress is not available on this API, because its clients refuse "+
		"events that it does not have; leave progress out, and follow the tools of the org's MCP servers with GET /v1/runs/{id}/events "+
		"(the header turnpike-run-id of the answer has the id)").In("turnpike-extensions")
}

// extensionsOf returns the extensions of an answer: those of the header, and those that the org
// has by default. A run without the loop has none. hidden says that the answer does not show all
// tools of the run: on an API without events of progress, it cannot be asked for then.
func (s *Surface) extensionsOf(header http.Header, byDefault []string, relayed, hidden bool) (Extensions, error) {
	x, asked, err := extensionsOf(header, byDefault, relayed)
	switch {
	case err != nil || s.Progress:
		return x, err
	case asked.Progress && hidden:
		return Extensions{}, noProgress()
	}
	x.Progress = false
	return x, nil
}

// extensionsOf returns all extensions, and those of the header alone.
func extensionsOf(header http.Header, byDefault []string, relayed bool) (all, asked Extensions, err error) {
	var names []string
	for _, line := range header.Values(extensionsHeader) {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.ToLower(strings.TrimSpace(name)); name != "" {
				names = append(names, name)
			}
		}
	}
	for _, name := range names {
		if !slices.Contains(builtExtensions, name) {
			return all, asked, fault.New(fault.Invalid, "invalid_value", "the header turnpike-extensions: there is no extension %.50q; use %s",
				name, strings.Join(builtExtensions, ", ")).In("turnpike-extensions")
		}
	}
	switch {
	case relayed && len(names) > 0:
		return all, asked, fault.New(fault.Invalid, "unsupported_value", "the header turnpike-extensions: the agent loop is off for this request, "+
			"and the answer of the provider is passed on without extensions; leave the header out").In("turnpike-extensions")
	case relayed:
		return all, asked, nil
	}
	of := func(lists ...[]string) Extensions {
		has := func(name string) bool {
			return slices.ContainsFunc(lists, func(list []string) bool { return slices.Contains(list, name) })
		}
		return Extensions{Trace: has("trace"), Progress: has("progress"), Session: has("session"), Cost: has("cost"), Files: has("files")}
	}
	return of(names, byDefault), of(names), nil
}

// AskedExtensions returns the extensions of the answer to a request for a stored answer.
func (h *Handler) AskedExtensions(header http.Header, caller caller.Caller) (Extensions, error) {
	return h.s.extensionsOf(header, caller.Org.Runtime.Extensions, false, len(caller.Servers) > 0)
}

// hidesTools reports whether the run has an MCP server whose calls its answer does not show.
func hidesTools(req *run.Request) bool {
	return len(req.Dispatched) > 0 || slices.ContainsFunc(req.Servers, func(s catalog.Server) bool {
		return !slices.ContainsFunc(req.RequestServers, func(d run.RequestServer) bool { return d.URL.IsZero() && d.Label == s.Name })
	})
}

// Extra has the members of an answer's object, or of the last object of its stream, that are
// extensions. The zero value has none.
type Extra struct {
	SessionID json.RawMessage `json:"session_id,omitempty"` // null for a run of no conversation
	Calls     []TracedCall    `json:"agentic_tool_calls,omitzero"`
	Files     []MadeFile      `json:"files,omitempty"`
	Cost      json.RawMessage `json:"cost,omitempty"` // null if nothing of the run has a price
}

// TracedCall is a call of a gateway's tool.
type TracedCall struct {
	Key       string `json:"call_key"` // of the run: round.index
	Round     int    `json:"round"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
	Result    string `json:"result_content"`
	Outcome   string `json:"outcome"` // as event.Outcome; "" = it has not ended

	FileIDs []string `json:"file_ids,omitempty"` // of the files that it has made
}

// Extra returns the extensions of the answer's object.
func (a *Answer) Extra() (x Extra) {
	if a.Extensions.Session {
		x.SessionID = json.RawMessage("null")
		if a.Session != "" {
			x.SessionID, _ = Marshal(a.Session) // a string: cannot fail
		}
	}
	if a.Extensions.Cost {
		x.Cost = json.RawMessage("null")
		if cost := a.End.Cost; !cost.IsZero() {
			x.Cost = json.RawMessage(`{"usd":` + cost.String() + `}`)
		}
	}
	if a.Extensions.Trace {
		x.Calls = append([]TracedCall{}, a.calls...)
		slices.SortStableFunc(x.Calls, func(a, b TracedCall) int { return loop.CompareKeys(loop.CallKey(a.Key), loop.CallKey(b.Key)) })
	}
	if a.Extensions.Files {
		x.Files = append(slices.Clip(a.files), a.notProduced()...)
	}
	return x
}

// trace notes a call of a gateway's tool. The error is that of the account.
func (a *Answer) trace(e event.Event) error {
	if !a.Extensions.Trace {
		return nil
	}
	var c TracedCall
	if e, ok := e.(event.ToolStarted); ok {
		c = TracedCall{Key: e.Key, Round: e.Round, Name: e.Name, Arguments: string(e.Arguments)}
	}
	if e, ok := e.(event.ToolDone); ok {
		c = TracedCall{Key: e.Key, Round: e.Round, Name: e.Name, Arguments: e.Arguments, Result: e.Text, Outcome: string(e.Outcome), FileIDs: FileIDs(e)}
	}
	const own, fileIDBytes = 128, 64
	if err := a.Charge(own + len(c.Arguments) + len(c.Result) + fileIDBytes*len(c.FileIDs)); err != nil {
		return err
	}
	i := slices.IndexFunc(a.calls, func(other TracedCall) bool { return other.Key == c.Key })
	if i < 0 {
		a.calls = append(a.calls, c)
		return nil
	}
	was := &a.calls[i] // begun, or begun again by the run's next owner
	was.Result, was.Outcome, was.FileIDs = c.Result, c.Outcome, c.FileIDs
	if was.Arguments == "" {
		was.Arguments = c.Arguments
	}
	return nil
}
