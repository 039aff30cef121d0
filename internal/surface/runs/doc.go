// Package runs is the API of stored runs: list them, show one, follow its events,
// cancel it, raise its limits.
//
//	GET  /v1/runs               List     journal.Archive
//	GET  /v1/runs/{id}          Get      eventlog.Show
//	GET  /v1/runs/{id}/events   Events   run.Runner.Follow ─► server-sent events
//	POST /v1/runs/{id}/cancel   Cancel   run.Runner.Cancel
//	POST /v1/runs/{id}/limits   Raise    run.Runner.Raise
//
// Owners and admins see all runs of their org, members those of their own key. Any
// other run does not exist for them: every id that is not theirs gets the same error.
package runs
