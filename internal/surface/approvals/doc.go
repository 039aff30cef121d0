// Package approvals is the API of tool calls that wait for the decision of a person: list
// them, show one, decide.
//
//	GET  /v1/approvals          List    journal.Archive, run.Decisions.AwaitApprovals
//	GET  /v1/approvals/{id}     Get     journal.Archive
//	POST /v1/approvals/{id}     Decide  run.Decisions.Decide
//	POST /v1/agent/approvals/{id}  DecideAgent  run.Decisions.Decide, DecideNext
//
// Owners, admins and approvers see and decide the approvals of their org, of servers and tools that their key may
// use; readers see them. Where the org says approvers: others, nobody decides those of his own key. On the last route
// members decide what their own requests ask for. The rule is journal.Approval.MayDecide. Every id that a key must not
// know of gets the same error as one that does not exist.
package approvals
