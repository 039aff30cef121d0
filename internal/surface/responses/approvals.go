package responses

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
)

// The ids of approval requests are those of approvals, with another prefix.
const (
	requestPrefix  = "mcpr_"
	approvalPrefix = "appr_"
)

func requestID(approval string) string {
	return requestPrefix + strings.TrimPrefix(approval, approvalPrefix)
}

func approvalID(request string) string {
	return approvalPrefix + strings.TrimPrefix(request, requestPrefix)
}

// approvalRequest is the item of a call that waits for approval.
type approvalRequest struct {
	ID          string `json:"id"`
	Type        string `json:"type"`
	ServerLabel string `json:"server_label"`
	Name        string `json:"name"`
	Arguments   string `json:"arguments"`
}

func newApprovalRequest(a event.Approval) approvalRequest {
	return approvalRequest{requestID(a.ID), "mcp_approval_request", a.Server, a.Tool, string(a.Arguments)}
}

// approvalInput is what an input says about approvals. Answers that nothing of the model
// follows are decisions; those in front of what the model has said since are history.
type approvalInput struct {
	requests map[string]approvalRequest
	answers  []approvalAnswer
	said     int // how many answers are in front of the last item of the model
}

type approvalAnswer struct {
	request string
	approve bool
	reason  string
	at      string
	item    int  // how many items are in front of it
	shown   bool // the items there stand for the denial
}

// addApprovalRequest notes an approval request that the client sends back. The model does not
// get it, and nothing of it is used for a decision.
func (in *inputReader) addApprovalRequest(at string, raw json.RawMessage) error {
	var w approvalRequest
	if err := json.Unmarshal(raw, &w); err != nil {
		return fault.New(fault.Invalid, "invalid_type", "%s: id, server_label, name and arguments must be strings", at).In(at)
	}
	if w.ID == "" {
		return fault.New(fault.Invalid, "missing_required_parameter", "%s has no id", at).In(at + ".id")
	}
	if in.approvals.requests == nil {
		in.approvals.requests = map[string]approvalRequest{}
	}
	in.approvals.requests[w.ID] = w
	return nil
}

// addApprovalResponse notes an answer to an approval request.
func (in *inputReader) addApprovalResponse(at string, raw json.RawMessage) error {
	var w struct {
		Request string  `json:"approval_request_id"`
		Approve *bool   `json:"approve"`
		Reason  *string `json:"reason"`
	}
	if err := json.Unmarshal(raw, &w); err != nil {
		return fault.New(fault.Invalid, "invalid_type", "%s: %s", at, plain(err)).In(at)
	}
	switch {
	case w.Request == "":
		return fault.New(fault.Invalid, "missing_required_parameter", "%s has no approval_request_id", at).In(at + ".approval_request_id")
	case w.Approve == nil:
		return fault.New(fault.Invalid, "missing_required_parameter", "%s has no approve", at).In(at + ".approve")
	}
	for _, a := range in.approvals.answers {
		if a.request == w.Request { // the first one counts
			return nil
		}
	}
	a := approvalAnswer{request: w.Request, approve: *w.Approve, reason: deref(w.Reason), at: at, item: len(in.req.Items)}
	a.shown = !a.approve && in.addDenied(w.Request, a.reason)
	in.approvals.answers = append(in.approvals.answers, a)
	return nil
}

// addDenied appends a call that was denied, as the model has seen it: with the denial as its
// result. It is history: the call is never made. It returns false if the input does not have the
// request, with the name of the tool, in front.
func (in *inputReader) addDenied(request, reason string) bool {
	w, known := in.approvals.requests[request]
	if !known || w.Name == "" {
		return false
	}
	text := "Tool call denied by user."
	if reason != "" {
		text = "Tool call denied by user: " + reason
	}
	call := item.NewCall(request, functionName(w.Name), w.Arguments)
	call.Turn = in.ofTurn()
	in.append(call, nil)
	in.append(item.NewResult(request, text, true), nil)
	return true
}

// modelSpoke notes that the input has an item of the model, or a call that was made: the answers
// in front of it are history.
func (in *inputReader) modelSpoke() { in.approvals.said = len(in.approvals.answers) }

// decideApprovals makes the answers that are no history the decisions of the request.
func (d *decoder) decideApprovals() error {
	current := d.approvals.answers[d.approvals.said:]
	if len(current) == 0 {
		return nil
	}
	if d.relayed() {
		return onlyTheLoop("input")
	}
	stateless := d.req.Continues.ID == ""
	for _, a := range current {
		if _, resent := d.approvals.requests[a.request]; stateless && !resent {
			return fault.New(fault.Invalid, "approval_not_found", "%s: the input has no approval request %.100q; send it, or continue the response with previous_response_id or conversation", a.at, a.request).In(a.at + ".approval_request_id")
		}
		d.req.Answers = append(d.req.Answers, run.Answer{
			ID: approvalID(a.request), Decision: journal.Decision{Approved: a.approve, Message: a.reason}, Place: a.at + ".approval_request_id",
		})
	}
	d.req.Late = d.lateItems(current, stateless)
	return nil
}

// lateItems returns the items that the client adds to the response that it continues: those
// behind the first answer, or all if it sends no history. Items that stand for denials are none.
func (d *decoder) lateItems(current []approvalAnswer, stateless bool) (late []item.Item) {
	from := 0
	if stateless {
		from = current[0].item
	}
	for i := from; i < len(d.req.Items); i++ {
		if !slices.ContainsFunc(current, func(a approvalAnswer) bool { return a.shown && (i == a.item || i == a.item+1) }) {
			late = append(late, d.req.Items[i])
		}
	}
	return late
}
