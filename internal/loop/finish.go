package loop

import "github.com/turnpike-gateway/turnpike/event"

// finish returns the end of a run in state s for the reason, with its cause. The run
// must be accepted.
func (s *State) finish(reason event.Reason) Finish {
	return Finish{Reason: reason, Cause: s.cause(reason), HandOver: s.handOver(reason)}
}

// Cause returns what has ended the run; the zero value if it has not finished.
func (s *State) Cause() Cause {
	if s.Finished == nil {
		return Cause{}
	}
	return s.cause(s.Finished.Reason)
}

func (s *State) cause(reason event.Reason) Cause {
	switch {
	case reason == event.ServerUnavailable && s.Catalogued != nil:
		server, _ := s.missingServer()
		return Cause{Server: server.Label}
	case reason == event.Invalid && s.Catalogued != nil && s.Catalogued.Conflict != nil:
		return Cause{Conflict: s.Catalogued.Conflict}
	case reason == event.Invalid && s.Catalogued != nil:
		return Cause{MissingTool: s.Catalogued.Missing}
	case reason == event.ToolAbort:
		return Cause{Call: s.failedCall()}
	case reason == event.Lost:
		c, _ := s.FatalCall()
		return Cause{Call: c.Key}
	case reason == event.ModelError:
		c := Cause{Provider: s.providerOf(s.Attempt.Target), Exhausted: s.exhausted()}
		if f := s.Attempt.First; f != nil {
			c.Provider, c.Credential, c.Param = s.providerOf(s.Attempt.Tried[0]), f.Credential, f.Param
		}
		return c
	case reason == event.TooLong:
		return Cause{Provider: s.providerOf(s.Attempt.Target)}
	case (reason == event.Cancelled || reason == event.CallerGone) && s.Cancelled != nil:
		return Cause{Gone: s.Cancelled.Code}
	case reason == event.Memory && s.Cancelled != nil && s.Cancelled.Code != "":
		return Cause{MemoryLimit: s.Cancelled.Code, Detail: s.Cancelled.Detail}
	}
	return Cause{}
}

// CodeJournalRefused is the code of a run that was given up because of its journal.
const CodeJournalRefused = "journal_refused"

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

// providerOf returns the name of the provider of a target; "" if the journal does not have it.
func (s *State) providerOf(i int) string {
	if i >= 0 && i < len(s.Accepted.Targets) {
		return s.Accepted.Targets[i].Provider
	}
	return ""
}

// handOver returns the calls that the caller executes after an end for the reason. A
// translated relay hands over the calls of its turn for every reason.
func (s *State) handOver(reason event.Reason) []CallKey {
	if reason != event.ClientCalls && (!s.relays() || s.Accepted.Raw) {
		return nil
	}
	var keys []CallKey
	for _, c := range s.ClientCalls() {
		keys = append(keys, c.Key)
	}
	return keys
}
