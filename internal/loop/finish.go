package loop

import (
	"github.com/turnpike-gateway/turnpike/event"
)

// CodeJournalRefused is the code of a run that was given up because of its journal.
const CodeJournalRefused = "journal_refused"

// CodeHookDenied is the code of a run that a hook has denied.
const CodeHookDenied = "hook_denied"

// CodeToolChoice is the code of a tool_choice that no tool satisfies.
const CodeToolChoice = "tool_choice_unavailable"

// Code returns the error code of a run that has ended for the reason with this cause; ""
// if the reason is not a failure. Surfaces send it, and Finished has it.
func (c Cause) Code(reason event.Reason) string {
	switch {
	case reason == event.Invalid && c.Conflict != nil:
		return "tool_name_conflict"
	case reason == event.Invalid:
		return CodeToolChoice
	case reason == event.ModelError && c.Credential:
		return "upstream_credential_refused"
	case reason == event.ModelError && c.Param != "":
		return "unsupported_value"
	case reason == event.ModelError:
		return "model_error"
	case reason == event.TooLong:
		return "context_length_exceeded"
	case reason == event.HookDenied:
		return CodeHookDenied
	case reason == event.BudgetExceeded:
		return "budget_exceeded"
	case reason == event.Blocked:
		return "outbound_ssrf_blocked"
	case reason == event.ServerUnavailable:
		return "server_unavailable"
	case reason == event.ToolAbort:
		return "tool_failed"
	case reason == event.Memory && c.MemoryLimit != "":
		return c.MemoryLimit
	case reason == event.Memory:
		return "run_memory_exceeded"
	case reason == event.Lost:
		return "run_lost"
	case (reason == event.Cancelled || reason == event.CallerGone) && c.Gone != "":
		return c.Gone
	case reason == event.Cancelled, reason == event.CallerGone:
		return string(reason)
	}
	return ""
}
