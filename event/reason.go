package event

// Reason is why a run ended. Each surface maps it to its own words.
type Reason string

// The reasons.
const (
	Complete          Reason = "complete"           // the model answered
	ClientCalls       Reason = "client_calls"       // the caller must execute the remaining tool calls
	MaxRounds         Reason = "max_rounds"         // the round limit
	MaxCalls          Reason = "max_calls"          // a call was skipped because of the run's call limit
	Deadline          Reason = "deadline"           // the time limit; time spent waiting for a human does not count
	Tokens            Reason = "tokens"             // the token budget
	Money             Reason = "money"              // the money budget
	BudgetExceeded    Reason = "budget_exceeded"    // a budget had no room for the first model call
	NoProgress        Reason = "no_progress"        // the run repeated the same calls
	OutputCut         Reason = "output_cut"         // the model's own output limit
	Refused           Reason = "refused"            // the provider's content filter
	Invalid           Reason = "invalid"            // the request cannot be served as it is
	HookDenied        Reason = "hook_denied"        // a hook refused
	Cancelled         Reason = "cancelled"          // the run was cancelled
	CallerGone        Reason = "caller_gone"        // the caller disconnected
	Blocked           Reason = "blocked"            // the outbound policy refused an address
	ModelError        Reason = "model_error"        // the provider failed
	ServerUnavailable Reason = "server_unavailable" // a required MCP server is down
	ToolAbort         Reason = "tool_abort"         // a tool failed and the org wants that to end the run
	TooLong           Reason = "too_long"           // the context does not fit
	Lost              Reason = "lost"               // the run cannot be continued after a crash
	Memory            Reason = "memory"             // the run, its org or the gateway is at its memory limit
)

// Reasons returns every reason, in the order of the constants.
func Reasons() []Reason {
	return []Reason{
		Complete, ClientCalls, MaxRounds, MaxCalls, Deadline, Tokens, Money, BudgetExceeded, NoProgress, OutputCut, Refused,
		Invalid, HookDenied, Cancelled, CallerGone, Blocked, ModelError, ServerUnavailable, ToolAbort, TooLong, Lost, Memory,
	}
}

// Limit reports whether a limit ended the run. The answer of such a run is the
// texts of all its rounds.
func (r Reason) Limit() bool {
	switch r {
	case MaxRounds, MaxCalls, Deadline, Tokens, Money, NoProgress:
		return true
	}
	return false
}

// Failed reports whether the caller gets an error instead of an answer.
func (r Reason) Failed() bool {
	switch r {
	case Invalid, HookDenied, Blocked, ModelError, ServerUnavailable, ToolAbort, TooLong, Lost, Cancelled, CallerGone, Memory, BudgetExceeded:
		return true
	}
	return false
}
