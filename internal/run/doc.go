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
//	                 ├─ Interrupt     drive.go      nothing is held
//	                 └─ Finish        drive.go      hand over, last event
//
// The parts:
//
//	Runner       runner.go       the public API: run, start, follow, resolve, cancel
//	driver       drive.go        asks the rules and performs their actions; one for each run
//	runState     state.go        the state of a run; numbers, stores and applies its facts
//	modelCaller  model.go        model calls; relay.go has those of a raw relay
//	toolCaller   tools.go        tool calls; cached.go has the result cache
//	toolSet      toolset.go      the tools that the model sees
//	leaseKeeper  keeper.go       leases: claim, renew, release; the runs of this process
//	runObserver  observe.go      traces and metrics; audit.go makes the audit entries
//
// One goroutine owns a run: it folds, appends and emits. Tools run in
// goroutines of their own, which end before the run does. A light run lives in
// the goroutine of its caller and ends with it. A durable run has its own:
// callers follow it (submit.go, handle.go). They read the latest events in its
// feed, and earlier ones in the store: see package eventlog.
//
//	caller ──► submit ──► driver ──► feed ──► followers     this process
//	                        │ every fact on disk before the next effect
//	                     journal + lease          rules for both: package journal
//	                        │ the lease ended: its process died, or released it
//	           claim ──► resume ──► driver ──► feed ──► followers  the next process (keeper.go, resume.go)
//
// There is no recovery mode: resume folds the journal, and the same loop asks the
// same rules. A request can be followed in these steps:
//
//	httpd/routes.go → surface/serve.go → surface/chat/decode.go → run/runner.go →
//	loop/decide.go → run/model.go → run/tools.go → loop/apply.go → surface/chat/encode.go
//
// Where to look:
//
//   - A deadline ends a run: deadline and noticeEnd in drive.go, the fact Expired in
//     loop/apply.go, and the case of an ended run in loop/decide.go.
//   - A tool result is truncated: executeOne in tools.go gives the limit, Done.truncate in
//     toolexec/execute.go decides, and toolexec/truncate.go cuts.
//   - An event gets its position: number in state.go numbers the facts, tell and nextDelta
//     in eventlog/fold.go make positions of the numbers.
package run
