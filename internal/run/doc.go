// Package run drives agent runs: it performs what the rules decide, appends
// what happened to the journal, and reports it to a sink.
//
//	Runner.Run ─► accepted ─► for { loop.Decide } ─► finished
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
// goroutines of their own, which end before the run does. A request can be
// followed in these steps:
//
//	httpd/routes.go → surface/chat/handler.go → decode.go → run/runner.go →
//	loop/decide.go → run/model.go → run/tools.go → loop/apply.go → surface/chat/encode.go
package run
