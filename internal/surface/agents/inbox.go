package agents

import (
	"encoding/json"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

var whenBusies = []run.WhenBusy{run.Reject, run.Enqueue, run.Steer, run.Interrupt}

// inputObject is an input of a session on the wire.
type inputObject struct {
	ID          string          `json:"id"`
	Kind        string          `json:"kind"`
	Principal   string          `json:"principal"`
	Content     json.RawMessage `json:"content"`
	RunID       string          `json:"run_id"`
	CreatedAt   *string         `json:"created_at"`
	ProcessedAt *string         `json:"processed_at"`
}

func wireInput(in agent.Input) inputObject {
	return inputObject{in.ID, in.Kind, in.Principal, in.Body, in.RunID, millis.Time(in.CreatedAt), millis.Time(in.ProcessedAt)}
}

// Inputs answers GET /api/sessions/{id}/inputs, the oldest first.
func (h *sessions) Inputs() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		page, err := surface.ReadOffsetPage(r)
		if err != nil {
			return 0, nil, err
		}
		s, err := h.findSession(r.Context(), caller, r.PathValue("id"))
		if err != nil {
			return 0, nil, err
		}
		found, total, err := h.store.SessionInputs(r.Context(), s.Org, s.ID, page.Limit, page.Offset)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, page.Of("inputs", surface.Each(found, wireInput), total), nil
	})
}
