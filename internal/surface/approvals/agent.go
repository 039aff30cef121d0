package approvals

import (
	"errors"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// decided is the answer to a decision of the agentic runtime.
type decided struct {
	Status   string                     `json:"status"`                // resolved, queued or not_found
	Approval string                     `json:"approval_id,omitempty"` // "" = its call is not asked for yet, or there is none
	Error    *surface.OpenAIErrorObject `json:"error,omitempty"`       // of not_found
}

// DecideAgent answers POST /v1/agent/approvals/{id}. The id is that of an approval, or that of a run: then the
// decision is about the only call of the run that waits, or, with early, about one that is not asked for yet. When
// the answer is sent, the decision is on disk. It is recorded even if the client has left.
func (h *Handler) DecideAgent(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	if err := surface.CheckQuery(r.URL.Query()); err != nil {
		return err
	}
	body, err := surface.ReadObject(r, caller.Account)
	if err != nil {
		return h.failed(err)
	}
	d, err := decision(body, "message", "early")
	if err != nil {
		return err
	}
	early, err := flag(body, "early")
	if err != nil {
		return err
	}
	ctx, cancel := surface.Detached(r)
	defer cancel()
	by := h.decider(caller)
	a, err := h.o.Decisions.Decide(ctx, caller.Org.ID, r.PathValue("id"), d, by)
	if errors.Is(err, org.ErrNotFound) {
		n := run.Next{Org: caller.Org.ID, RunID: audit.StoredRunID(r.PathValue("id")), Decision: d, Early: early}
		a, err = h.o.Decisions.DecideNext(ctx, n, by)
	}
	switch {
	case errors.Is(err, org.ErrNotFound):
		return h.failed(surface.WriteJSON(w, http.StatusNotFound, decided{Status: "not_found", Error: &surface.OpenAIErrorObject{
			Message: "there is no approval and no active run with this id; GET /v1/approvals lists the approvals of the org", Type: "invalid_request_error", Code: new("not_found"),
		}}))
	case err != nil:
		return h.failed(err)
	case a.ID == "":
		return h.failed(surface.WriteJSON(w, http.StatusOK, decided{Status: "queued"}))
	}
	return h.failed(surface.WriteJSON(w, http.StatusOK, decided{Status: "resolved", Approval: a.ID}))
}
