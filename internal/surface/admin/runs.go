package admin

import (
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// cancelled is the answer to a cancel: the run ends soon, and says so itself.
type cancelled struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

// CancelRun answers POST /api/runs/{id}/cancel. The cancel is on disk when the
// answer leaves; what the run is waiting for is cut off.
func (h *Handler) CancelRun() Endpoint {
	return h.endpoint(func(r *http.Request, caller run.Caller) (int, any, error) {
		runID := audit.StoredRunID(r.PathValue("id"))
		if err := h.o.Runs.Cancel(r.Context(), caller.Org.ID, runID, h.author(caller)); err != nil {
			return 0, nil, named(err, "run", runID)
		}
		return http.StatusAccepted, cancelled{runID, "cancelling"}, nil
	})
}
