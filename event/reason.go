package event

// Reason is why a run ended. Each surface maps it to its own words.
type Reason string

// The reasons, as in the table "Why a run ends" of the design.
const (
	Complete          Reason = "complete"           // the model answered
	ClientCalls       Reason = "client_calls"       // what is left belongs to the caller
	Waiting           Reason = "waiting"            // parked: a human decides
	MaxRounds         Reason = "max_rounds"         // the round limit
	MaxCalls          Reason = "max_calls"          // a call was skipped for the run's call limit
	Deadline          Reason = "deadline"           // the active time is used up
	Tokens            Reason = "tokens"             // the token budget
	Money             Reason = "money"              // the money budget
	NoProgress        Reason = "no_progress"        // the progress guard stopped the run
	OutputCut         Reason = "output_cut"         // the model's own output limit
	Refused           Reason = "refused"            // the provider's content filter
	Invalid           Reason = "invalid"            // the request cannot be served as it is
	HookDenied        Reason = "hook_denied"        // a hook said no
	Cancelled         Reason = "cancelled"          // somebody cancelled the run
	CallerGone        Reason = "caller_gone"        // nobody is left to answer
	Blocked           Reason = "blocked"            // the outbound policy refused an address
	ModelError        Reason = "model_error"        // the provider failed
	ServerUnavailable Reason = "server_unavailable" // a required MCP server is down
	ToolAbort         Reason = "tool_abort"         // a tool failed and the org wants that to end the run
	TooLong           Reason = "too_long"           // the context does not fit
	Lost              Reason = "lost"               // the run cannot be continued after a crash
	Memory            Reason = "memory"             // the run would retain more than it may
)

// Reasons returns every reason, in the order of the constants.
func Reasons() []Reason {
	return []Reason{
		Complete, ClientCalls, Waiting, MaxRounds, MaxCalls, Deadline, Tokens, Money, NoProgress, OutputCut, Refused,
		Invalid, HookDenied, Cancelled, CallerGone, Blocked, ModelError, ServerUnavailable, ToolAbort, TooLong, Lost, Memory,
	}
}

// Limit reports whether the run was ended by one of its limits, so that the
// texts of all rounds belong to the answer.
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
	case Invalid, HookDenied, Blocked, ModelError, ServerUnavailable, ToolAbort, TooLong, Lost, Cancelled, CallerGone, Memory:
		return true
	}
	return false
}
