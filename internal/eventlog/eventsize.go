package eventlog

import (
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/event"
)

// EventSize returns about how many bytes of memory an event retains.
func EventSize(e event.Event) int {
	const own = 64
	switch e := e.(type) {
	case event.TextDelta:
		return own + len(e.Text)
	case event.ReasoningDelta:
		return own + len(e.Text)
	case event.RefusalDelta:
		return own + len(e.Text)
	case event.CallDelta:
		return own + len(e.CallID) + len(e.Name) + len(e.Arguments)
	case event.NativeItem:
		return own + len(e.JSON)
	case event.NativeProgress:
		return own + len(e.JSON)
	case event.Citation:
		return 3*own + len(e.Citation.URL) + len(e.Citation.Title) + len(e.Citation.FileID) + len(e.Citation.Filename) +
			len(e.Citation.ContainerID)
	case event.ToolsListed:
		n := own
		for _, server := range e.Servers {
			for _, t := range server.Tools {
				n += 2*own + len(t.Name) + len(t.Title) + len(t.Description) + len(t.InputSchema)
			}
		}
		return n
	case event.ToolStarted:
		return 2*own + len(e.Arguments)
	case event.ToolDone:
		n := 2*own + len(e.Text) + len(e.Arguments) + len(e.Image)
		for _, f := range e.Files {
			n += FileSize(f)
		}
		switch v := e.Value.(type) {
		case interface{ Size() int }:
			n += v.Size()
		case json.RawMessage:
			n += len(v)
		}
		return n
	case event.Waiting:
		n := 2 * own
		for _, a := range e.Approvals {
			n += 4*own + len(a.Arguments)
		}
		return n
	case event.Paused:
		return 4*own + len(e.Message)
	case event.LimitsRaised:
		return 2 * own
	case event.Compacted:
		return 2 * own
	case event.HookRan:
		return 3*own + len(e.Message)
	case event.ApprovalDecided:
		return 3*own + len(e.Reason)
	case event.Finished:
		n := 4 * own
		for _, c := range e.Calls {
			n += own + len(c.Arguments)
		}
		if f := e.Failure; f != nil {
			n += 4*own + len(f.Message)
			if f.Upstream != nil {
				n += 8*own + len(f.Upstream.Body)
			}
		}
		return n
	case event.ModelFallback:
		return (4 + 2*len(e.Skipped)) * own
	case event.Started, event.RoundStarted, event.RoundDone, event.ItemDone, event.RelayHead, event.RelayBody: // a relay retains nothing
	}
	return own
}

// FileSize returns about how many bytes of memory a file retains, without its content.
func FileSize(f event.File) int {
	return 256 + len(f.ID) + len(f.Name) + len(f.Path) + len(f.MediaType) + len(f.SHA256) + len(f.Preview)
}

// RoundOf returns the round of what a model said: a delta, or the end of one of its items. It is -1
// for any other event.
func RoundOf(e event.Event) int {
	switch e := e.(type) {
	case event.TextDelta:
		return e.Round
	case event.ReasoningDelta:
		return e.Round
	case event.RefusalDelta:
		return e.Round
	case event.CallDelta:
		return e.Round
	case event.NativeItem:
		return e.Round
	case event.NativeProgress:
		return e.Round
	case event.Citation:
		return e.Round
	case event.ItemDone:
		return e.Round
	case event.Started, event.ToolsListed, event.RoundStarted, event.ModelFallback, event.RoundDone,
		event.ToolStarted, event.ToolDone, event.RelayHead, event.RelayBody,
		event.ApprovalDecided, event.Waiting, event.Paused, event.LimitsRaised, event.HookRan, event.Compacted,
		event.Finished: // the gateway said it
	}
	return -1
}
