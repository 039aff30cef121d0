package event

import (
	"encoding/json"
	"time"
)

// Size returns about how many bytes of memory an event retains.
func Size(e Event) int {
	const own = 64
	switch e := e.(type) {
	case TextDelta:
		return own + len(e.Text)
	case ReasoningDelta:
		return own + len(e.Text)
	case RefusalDelta:
		return own + len(e.Text)
	case CallDelta:
		return own + len(e.CallID) + len(e.Name) + len(e.Arguments)
	case NativeItem:
		return own + len(e.JSON)
	case NativeProgress:
		return own + len(e.JSON)
	case Citation:
		return 3*own + len(e.Citation.URL) + len(e.Citation.Title) + len(e.Citation.FileID) + len(e.Citation.Filename) + len(e.Citation.ContainerID)
	case ToolsListed:
		n := own
		for _, server := range e.Servers {
			for _, t := range server.Tools {
				n += 2*own + len(t.Name) + len(t.Title) + len(t.Description) + len(t.InputSchema)
			}
		}
		return n
	case ToolStarted:
		return 2*own + len(e.Arguments)
	case ToolDone:
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
	case Waiting:
		n := 2 * own
		for _, a := range e.Approvals {
			n += 4*own + len(a.Arguments)
		}
		return n
	case Paused:
		return 4*own + len(e.Message)
	case LimitsRaised:
		return 2 * own
	case Compacted:
		return 2 * own
	case HookRan:
		return 3*own + len(e.Message)
	case ApprovalDecided:
		return 3*own + len(e.Reason)
	case Finished:
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
	case ModelFallback:
		return (4 + 2*len(e.Skipped)) * own
	case Started, RoundStarted, RoundDone, ItemDone, RelayHead, RelayBody: // a relay retains nothing
	}
	return own
}

// FileSize returns about how many bytes of memory a file retains, without its content.
func FileSize(f File) int {
	return 256 + len(f.ID) + len(f.Name) + len(f.Path) + len(f.MediaType) + len(f.SHA256) + len(f.Preview)
}

// Round returns the round of what a model said: a delta, or the end of one of its items. It is -1
// for any other event.
func Round(e Event) int {
	switch e := e.(type) {
	case TextDelta:
		return e.Round
	case ReasoningDelta:
		return e.Round
	case RefusalDelta:
		return e.Round
	case CallDelta:
		return e.Round
	case NativeItem:
		return e.Round
	case NativeProgress:
		return e.Round
	case Citation:
		return e.Round
	case ItemDone:
		return e.Round
	case Started, ToolsListed, RoundStarted, ModelFallback, RoundDone, ToolStarted, ToolDone, RelayHead, RelayBody,
		ApprovalDecided, Waiting, Paused, LimitsRaised, HookRan, Compacted, Finished: // the gateway said it
	}
	return -1
}

// Time returns when an event happened; the zero time for one that has no time of its own, such as a delta.
func Time(e Event) time.Time {
	switch e := e.(type) {
	case Started:
		return e.At
	case RoundStarted:
		return e.At
	case ModelFallback:
		return e.At
	case RoundDone:
		return e.At
	case ToolStarted:
		return e.At
	case ToolDone:
		return e.At
	case ApprovalDecided:
		return e.At
	case Waiting:
		return e.At
	case Paused:
		return e.At
	case LimitsRaised:
		return e.At
	case HookRan:
		return e.At
	case Compacted:
		return e.At
	case Finished:
		return e.At
	case ToolsListed, TextDelta, ReasoningDelta, RefusalDelta, CallDelta, NativeItem, Citation, NativeProgress, ItemDone, RelayHead, RelayBody:
	}
	return time.Time{}
}
