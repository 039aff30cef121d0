package event

import "time"

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
