package run

import (
	"errors"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
)

// What a request that continues a run may append to it, for a run that waits for the approvals a and b.
func TestWhatAContinuingRequestBrings(t *testing.T) {
	asked := func(id string, resolved bool) *loop.Call {
		return &loop.Call{Wait: &loop.CallWaiting{WaitID: id}, Resolved: resolved}
	}
	waiting := loop.State{At: 9, Calls: []*loop.Call{asked("a", false), asked("b", false)}}
	oneLeft := loop.State{At: 9, Calls: []*loop.Call{asked("a", true), asked("b", false)}}
	a, b := journal.Approval{ID: "a", Status: journal.ApprovalWaiting}, journal.Approval{ID: "b", Status: journal.ApprovalWaiting}
	settled := journal.Approval{ID: "a", Status: journal.ApprovalApproved}
	yes, no := journal.Decision{Approved: true}, journal.Decision{Message: "no"}
	late := []item.Item{item.NewText(item.User, "go on")}
	for name, c := range map[string]struct {
		state     loop.State
		approvals []journal.Approval
		answers   []journal.Decision
		late      []item.Item
		want      []loop.Body
		rows      []string
		code      string
	}{
		"one of two answers: the run still waits, and nothing is stored for the next part": {
			waiting, []journal.Approval{a}, []journal.Decision{yes}, nil,
			[]loop.Body{loop.CallResolved{WaitID: "a", Approved: true, By: "p"}}, nil, "",
		},
		"all answers at once": {
			waiting, []journal.Approval{a, b}, []journal.Decision{yes, no}, nil,
			[]loop.Body{loop.CallResolved{WaitID: "a", Approved: true, By: "p"}, loop.CallResolved{WaitID: "b", By: "p", Message: "no"}}, []string{"part:2"}, "",
		},
		"the last answer, with new input and one that is known": {
			oneLeft, []journal.Approval{settled, b}, []journal.Decision{yes, no}, late,
			[]loop.Body{loop.CallResolved{WaitID: "b", By: "p", Message: "no"}, loop.InputAdded{ItemsRef: "input:2", By: loop.ByClient}}, []string{"input:2", "part:2"}, "",
		},
		"new input before the last answer": {waiting, []journal.Approval{a}, []journal.Decision{yes}, late, nil, nil, "approvals_undecided"},
	} {
		t.Run(name, func(t *testing.T) {
			req := &Request{Who: Who{Principal: "p"}, Input: Input{Late: c.late}}
			for i, d := range c.answers {
				req.Answers = append(req.Answers, Answer{ID: c.approvals[i].ID, Decision: d})
			}
			got, err := brings(&c.state, req, c.approvals, 2, storedPart{}, 5)
			var refused *fault.Error
			if errors.As(err, &refused) != (c.code != "") || refused != nil && refused.Reason != c.code {
				t.Fatalf("err = %v, want %q", err, c.code)
			}
			if err != nil {
				return
			}
			if len(got.bodies) != len(c.want) || len(got.rows) != len(c.rows) {
				t.Fatalf("brings %v with rows %v, want %v with %v", got.bodies, got.rows, c.want, c.rows)
			}
			decisions := 0
			for i, body := range got.bodies {
				if added, ok := body.(loop.InputAdded); ok {
					body = loop.InputAdded{ItemsRef: added.ItemsRef, By: added.By}
				} else {
					decisions++
				}
				if body != c.want[i] {
					t.Errorf("fact %d is %+v, want %+v", i, body, c.want[i])
				}
			}
			for i, row := range got.rows {
				if row.Ref != c.rows[i] {
					t.Errorf("row %d is %s, want %s", i, row.Ref, c.rows[i])
				}
			}
			if len(got.audit) != decisions || got.audit[0].At != 9 { // not earlier than the run's last fact
				t.Errorf("audit %+v, want one entry for each decision, at 9", got.audit)
			}
		})
	}
}
