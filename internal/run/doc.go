// Package run drives agent runs: it performs what the rules decide, appends
// what happened to the journal, and reports it to a sink.
//
//	Runner.Run ─► accept.go ─► for { loop.Decide } ─► finished     drive.go
//	                 │
//	                 ├─ Discover      discover.go   catalog
//	                 ├─ CallModel     model.go      provider/…  ─► deltas to the sink
//	                 ├─ PrepareTools  tools.go      toolexec
//	                 ├─ ExecuteTools  tools.go      toolexec ─► mcptool ─► egress
//	                 ├─ AnswerCalls   tools.go      nothing outside
//	                 ├─ Interrupt     park.go       nothing is held
//	                 └─ Finish        finish.go     hand over, last event
//
// One goroutine owns a run: it folds, appends and emits. Tools run in
// goroutines of their own, which end before the run does. A light run lives in
// the goroutine of its caller and ends with it. A durable run has its own:
// callers follow what it has told, each from the beginning (submit.go, feed.go).
//
//	caller ──► submit ──► drive ──► feed ──► callers        this process
//	                        │ every fact on disk before the next effect
//	                     journal + lease
//	                        │ the lease ended: its process died, or gave it back
//	           claim ──► resume ──► drive ──► feed ──► callers   the next (owner.go, resume.go)
//
// Going on is not a mode: resume folds the journal, and the same loop asks the
// same rules. A request can be followed in these steps:
//
//	httpd/routes.go → surface/chat/handler.go → decode.go → run/runner.go →
//	loop/decide.go → run/model.go → run/tools.go → loop/apply.go → surface/chat/encode.go
package run
