package chat

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// The types of the events of the extension progress.
const (
	toolProgress     = "agentic_tool_call_progress"
	approvalRequired = "agentic_tool_approval_required"
	runPaused        = "agentic_run_paused"
	fileProduced     = "file_produced"
)

// extension is an event of a stream that the OpenAI document does not have. Official clients read
// it as a chunk without choices: it has an empty list of them, and no id, so that no client takes
// its members for those of the answer. It is never the first event of a stream.
type extension struct {
	Type    string        `json:"type"`
	Choices []chunkChoice `json:"choices"` // empty
}

func newExtension(kind string) extension { return extension{kind, []chunkChoice{}} }

// progress is the event for the begin or the end of a call of a gateway's tool.
type progress struct {
	extension
	Key   string `json:"call_key"`
	Round int    `json:"round"`
	Name  string `json:"tool_name"`
	Phase string `json:"phase"` // calling or complete
	Data  any    `json:"data"`  // as its tool_type says: see progressdata.go
}

// produced is the event for a file that a call has made. The file has an id, so it is not the event itself.
type produced struct {
	extension
	Key   string           `json:"call_key"`
	Round int              `json:"round"`
	Name  string           `json:"tool_name"`
	File  surface.MadeFile `json:"file"`
}

// required is the event for a call that waits for the approval of a person.
type required struct {
	extension
	RunID      string  `json:"run_id"`
	ApprovalID string  `json:"approval_id"`
	SessionID  string  `json:"session_id,omitempty"`
	Key        string  `json:"call_key"`
	Round      int     `json:"round"` // from 0
	Server     string  `json:"server"`
	Name       string  `json:"tool_name"`
	Tool       asking  `json:"tool"`
	Arguments  string  `json:"arguments"`
	ExpiresAt  *string `json:"expires_at"` // null = never
}

// asking says what a call that waits does, for the person who decides.
type asking struct {
	Source string `json:"source"` // built_in or external
	Kind   string `json:"kind"`   // code_execution, shell, web_search, custom or external
	Label  string `json:"label"`  // the server's own name of the tool
}

func askingOf(a event.Approval) asking {
	if a.Server != org.BuiltinTools {
		return asking{"external", "external", a.Tool}
	}
	row, _ := builtin.Find(a.Tool)
	return asking{"built_in", cmp.Or(row.Label, "custom"), a.Tool}
}

// roundOf returns the round of a call, with whose number its key begins.
func roundOf(key string) int {
	round, _, _ := strings.Cut(key, ".")
	n, _ := strconv.Atoi(round)
	return n
}

// pausedRun is the event for a run that waits for a raise of its limits.
type pausedRun struct {
	extension
	RunID     string  `json:"run_id"`
	PauseID   string  `json:"pause_id"`
	Limit     string  `json:"limit"`            // the reason with which the run would end
	Budget    string  `json:"budget,omitempty"` // of several runs, that has no room; absent = it is a limit of the run
	Message   string  `json:"message"`
	ExpiresAt *string `json:"expires_at"` // null = never
}

// progress sends the events of the extension progress. Calls that begin and end are part of a live
// stream only. Every stream says that its run waits.
// The error is that of the account.
func (e *encoder) progress(ev event.Event) error {
	switch ev := ev.(type) {
	case event.ToolStarted:
		if e.Live {
			e.extend(toolProgress, progress{newExtension(toolProgress), ev.Key, ev.Round, ev.Name, "calling", calling(ev)})
			return e.keepArguments(ev)
		}
	case event.ToolDone:
		if e.Live {
			e.extend(toolProgress, progress{newExtension(toolProgress), ev.Key, ev.Round, ev.Name, "complete", complete(ev, e.argumentsOf(ev))})
			for _, f := range e.MadeBy(ev.Key) {
				e.extend(fileProduced, produced{newExtension(fileProduced), ev.Key, ev.Round, ev.Name, f})
			}
		}
	case event.Waiting:
		for _, a := range ev.Approvals {
			e.require(a)
		}
	case event.Paused:
		e.pause(ev)
	case event.Started, event.ToolsListed, event.RoundStarted, event.ModelFallback, event.TextDelta, event.ReasoningDelta, event.RefusalDelta,
		event.CallDelta, event.NativeItem, event.Citation, event.NativeProgress, event.ItemDone, event.RoundDone, event.Compacted, event.HookRan, event.LimitsRaised,
		event.RelayHead, event.RelayBody, event.ApprovalDecided, event.Finished: // no step of a tool
	}
	return nil
}

// require sends that a call waits, once.
func (e *encoder) require(a event.Approval) {
	if slices.Contains(e.asked, a.ID) {
		return
	}
	e.asked = append(e.asked, a.ID)
	w := required{
		extension: newExtension(approvalRequired), RunID: e.Started.RunID, ApprovalID: a.ID,
		SessionID: e.Session, Key: a.Key, Round: roundOf(a.Key), Server: a.Server, Name: a.Name, Tool: askingOf(a), Arguments: string(a.Arguments),
		ExpiresAt: surface.Milliseconds.Time(a.ExpiresAt),
	}
	e.extend(approvalRequired, w)
}

// pause sends that the run waits at a limit.
func (e *encoder) pause(ev event.Paused) {
	w := pausedRun{
		extension: newExtension(runPaused), RunID: e.Started.RunID, PauseID: ev.ID, Limit: string(ev.Reason), Budget: ev.Budget, Message: ev.Message,
		ExpiresAt: surface.Milliseconds.Time(ev.ExpiresAt),
	}
	e.extend(runPaused, w)
}

// extend sends an event of the extension progress after the chunk with the role.
func (e *encoder) extend(kind string, v any) {
	e.open()
	e.SendJSON(kind, v)
}
