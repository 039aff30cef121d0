// Package approvals is the API of tool calls that wait for the decision of a person: list
// them, show one, decide.
//
//	GET  /v1/approvals          List    journal.Archive, run.Decisions.AwaitApprovals
//	GET  /v1/approvals/{id}     Get     journal.Archive
//	POST /v1/approvals/{id}     Decide  run.Runner.Decide
//	POST /v1/agent/approvals/{id}  DecideAgent  run.Decisions.Decide, DecideNext
//
// Owners, admins and approvers see and decide all approvals of their org. Those of other orgs
// do not exist for them: every id that is not of their org gets the same error.
package approvals
