package approvals

import (
	"context"
	"errors"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
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
	by := caller.Author(h.o.Now())
	a, err := h.decideOne(ctx, caller, r.PathValue("id"), d, by)
	if errors.Is(err, org.ErrNotFound) {
		a, err = h.decideNext(ctx, caller, audit.StoredRunID(r.PathValue("id")), d, early, by)
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

// decideOne decides an approval. For a key that may only decide what its own request asks for there are no others.
func (h *Handler) decideOne(ctx context.Context, caller caller.Caller, id string, d journal.Decision, by org.Author) (journal.Approval, error) {
	a, err := h.o.Archive.Approval(ctx, caller.Org.ID, id)
	if err != nil {
		return a, err
	}
	if err := mayDecide(&a, caller); err != nil {
		return a, err
	}
	return h.o.Decisions.Decide(ctx, caller.Org.ID, a.ID, d, by)
}

func mayDecide(a *journal.Approval, caller caller.Caller) error {
	if own := a.Principal == caller.Principal.ID && a.Asker == loop.AskedByRequest; !own && !caller.Principal.Role.MayApprove() {
		return org.ErrNotFound
	}
	return a.MayDecide(caller.Org, caller.Principal)
}

// decideNext decides the only call of a run that waits. If none waits and the decision is early, it is kept for the
// next call.
func (h *Handler) decideNext(ctx context.Context, caller caller.Caller, runID string, d journal.Decision, early bool, by org.Author) (journal.Approval, error) {
	head, err := h.o.Archive.Head(ctx, caller.Org.ID, runID)
	if err == nil && !caller.Principal.Role.MayApprove() && head.Summary.Principal != caller.Principal.ID {
		err = org.ErrNotFound
	}
	if err != nil {
		return journal.Approval{}, err
	}
	n := run.Next{Org: caller.Org.ID, RunID: runID, Access: caller.Principal.Access, Decision: d, Early: early, MayDecide: func(a *journal.Approval) error {
		switch {
		case a != nil:
			return mayDecide(a, caller)
		case !caller.Principal.Role.MayApprove(): // nobody knows whose rule will ask
			return org.ErrNotFound
		}
		return journal.MayDecideEarly(caller.Org, caller.Principal, runID, head.Summary.Principal)
	}}
	return h.o.Decisions.DecideNext(ctx, n, by)
}
