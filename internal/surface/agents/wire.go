package agents

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
)

// ordered is one JSON object with the members of several structs, in the order of their names.
type ordered []any

// MarshalJSON implements json.Marshaler.
func (o ordered) MarshalJSON() ([]byte, error) {
	var all []surface.Member
	for _, part := range o {
		text, err := surface.Marshal(part)
		if err != nil {
			return nil, err
		}
		for name, value := range surface.Members(text) {
			all = append(all, surface.Member{Name: name, Value: value})
		}
	}
	slices.SortFunc(all, func(a, b surface.Member) int { return cmp.Compare(a.Name, b.Name) })
	out := []byte("{")
	for i, m := range all {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, '"'), m.Name...) // of a struct: nothing in it is escaped
		out = append(append(out, '"', ':'), m.Value...)
	}
	return append(out, '}'), nil
}

// frameHead is what frames have in common.
type frameHead struct {
	Event string `json:"event"`
	Type  string `json:"type"`          // = Event
	Seq   int    `json:"seq,omitempty"` // from 1; deltas have none
	TS    string `json:"ts,omitempty"`
}

// The members of the frames beside the head.
type (
	startFrame struct {
		RunID          string   `json:"run_id"`
		SessionID      string   `json:"session_id"`
		ContextHandler *string  `json:"context_handler_id"` // nil: there are none in this version
		Reasoning      bool     `json:"reasoning_requested"`
		Missing        []string `json:"missing_servers"`
	}
	stepFrame struct {
		Step int  `json:"step"`
		Last bool `json:"is_last_step"`
	}
	completedFrame struct {
		Step   int        `json:"step"`
		Finish model.Stop `json:"finish_reason"`
		Called bool       `json:"has_tool_calls"`
	}
	resetFrame struct {
		Reason string `json:"reason"`
	}
	recoveryFrame struct {
		Attempt int `json:"attempt"`
	}
	fallbackFrame struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	compactFrame struct {
		Before    int64 `json:"tokens_before"`
		After     int64 `json:"tokens_after"`
		Succeeded bool  `json:"succeeded"`
	}
	deltaFrame struct {
		Delta string `json:"delta"`
	}
	chunkFrame struct {
		Content string `json:"content"`
	}
	reasoningFrame struct {
		Step    int    `json:"step"`
		Content string `json:"content"`
	}
	callFrame struct {
		Step      int             `json:"step"`
		Name      string          `json:"tool_name"`
		Arguments json.RawMessage `json:"arguments"`
		ID        string          `json:"call_id"`
	}
	resultFrame struct {
		Step       int        `json:"step"`
		Name       string     `json:"tool_name"`
		ID         string     `json:"call_id"`
		Preview    string     `json:"result_preview"`
		Meta       resultMeta `json:"result_meta"`
		IsError    bool       `json:"is_error"` // the call has failed, or was not executed
		DurationMS int64      `json:"duration_ms"`
	}
	resultMeta struct {
		Characters int    `json:"char_count"`
		Type       string `json:"result_type"` // text
	}
	approvalFrame struct {
		ID        string          `json:"approval_id"`
		Name      string          `json:"tool_name"`
		Input     json.RawMessage `json:"tool_input"`
		CallID    string          `json:"call_id"`
		Message   string          `json:"message"`
		ExpiresAt *string         `json:"expires_at"`
	}
	hookFrame struct {
		ID        string           `json:"hook_id"`
		Position  int              `json:"position"`
		Event     string           `json:"hook_event"`
		Status    event.HookStatus `json:"status"`
		Modified  bool             `json:"modified"`
		Blocked   bool             `json:"blocked"`
		LatencyMS float64          `json:"latency_ms"`
		Message   string           `json:"message"`
	}
	errorFrame struct {
		Error string `json:"error"`
		Code  string `json:"code"`
		RunID string `json:"run_id"`
	}
)

// runResult is a run so far, in the frame complete and in the answers about it.
type runResult struct {
	RunID     string `json:"run_id"`
	SessionID string `json:"session_id"`
	Content   string `json:"content"`
	Status    string `json:"status"`
	Error     string `json:"error,omitempty"`
	Code      string `json:"code,omitempty"` // of the error
	Steps     int    `json:"steps"`
	Calls     []call `json:"tool_calls"`
	Usage     usage  `json:"usage"`
}

// toollessRun is what the answer to a run without tools has beside the result.
type toollessRun struct {
	ToolsUsed bool   `json:"tools_used"` // false
	Hint      string `json:"hint"`
}

// waitingRun is what the answer to a run has beside the result, if it waits.
type waitingRun struct {
	Approvals []string `json:"approvals"`
}

// runRecord is what the record of a run has beside the result.
type runRecord struct {
	AgentID       string     `json:"agent_id"`
	AgentVersion  int        `json:"agent_version"`
	Input         *string    `json:"input"` // its messages, parted by blank lines; nil = they wait, or are deleted
	Model         *string    `json:"model"` // that has answered last; nil = none was called
	Targets       []target   `json:"targets"`
	CreatedAt     *string    `json:"created_at"`
	CompletedAt   *string    `json:"completed_at"` // nil = it has not ended
	Approvals     []string   `json:"approvals"`
	OnRunComplete []toldHook `json:"on_run_complete"`
}

// deletedRun is a run that retention_days has deleted.
type deletedRun struct {
	RunID        string  `json:"run_id"`
	SessionID    string  `json:"session_id"`
	AgentID      string  `json:"agent_id"`
	AgentVersion int     `json:"agent_version"`
	Status       string  `json:"status"` // deleted
	CreatedAt    *string `json:"created_at"`
}
