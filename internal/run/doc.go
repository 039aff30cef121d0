// Package run drives agent runs: it performs what the rules decide, appends
// what happened to the journal, and hands it to the event log of the run
// (package eventlog), which emits the events to sinks.
//
//	Runner.Run ─► accept.go ─► for { loop.Decide } ─► finished     drive.go
//	                 │
//	                 ├─ AddInput      accept.go     conversation
//	                 ├─ Discover      drive.go      catalog
//	                 ├─ RunHooks      hooks.go      hook
//	                 ├─ Route         model.go      route
//	                 ├─ CallModel     model.go      provider/…  ─► deltas to the event log
//	                 ├─ Compact       compact.go    window, or a model call that summarises
//	                 ├─ PrepareTools  tools.go      toolexec
//	                 ├─ ExecuteTools  tools.go      toolexec ─► mcptool ─► egress
//	                 ├─ AnswerCalls   tools.go      nothing outside
//	                 ├─ Interrupt     drive.go      parks: no goroutine, lease or slot is kept
//	                 ├─ Pause         drive.go      the same, at a limit
//	                 └─ Finish        drive.go      hand over, last event
//
// The parts, with the files of their methods:
//
//	Runner       runner.go, handle.go   requests become runs: Run, and Start for those that nobody waits for;
//	                                    handle.go also has what others do to a run by its id
//	Decisions    decisions.go           decisions about approvals
//	driver       drive.go, accept.go    performs the actions of one run; how a run begins here and leaves
//	runState     state.go, accept.go    the state of a run; numbers, stores and applies its facts
//	modelCaller  model.go, relay.go     model calls; those of a raw relay
//	toolCaller   tools.go, toolprice.go tool calls; resultCache in cached.go
//	toolSet      toolset.go             the tools that the model sees
//	leaseKeeper  keeper.go              leases: claim, renew, release; the runs of this process
//	audience     callers.go, approval.go who waits for the answer of a run; decisions about its calls
//	Performer    perform.go             runs of a program that embeds the loop, in goroutines of its own
//	runObserver  observe.go             traces and metrics; audit.go makes the audit entries
//
// The events of a run, and its followers, are those of package eventlog.
//
// One goroutine owns a run: it folds and appends facts; the event log emits what follows from them. Tools run in
// goroutines of their own, which end before the run does. A light run lives in
// the goroutine of its caller and ends with it. A durable run has its own:
// callers follow it (handle.go). They read the latest events in its
// feed, and earlier ones in the store: see package eventlog.
//
//	caller ──► submit ──► driver ──► feed ──► followers     this process
//	                        │ every fact on disk before the next effect
//	                     journal + lease          rules for both: package journal
//	                        │ the lease ended: its process died, or released it
//	           claim ──► resume ──► driver ──► feed ──► followers  the next process (keeper.go, accept.go)
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
//   - What a model call costs, also one whose stream breaks: State.Cost in loop/charge.go, of what modelCaller.call in
//     model.go has recorded; reserve.go settles the shared budgets with the same amount.
//   - A tool result is truncated: executeOne in tools.go gives the limit, Done.truncate in
//     toolexec/execute.go decides, and toolexec/truncate.go cuts.
//   - An event gets its position: number in state.go numbers the facts, tell and nextDelta
//     in eventlog/fold.go make positions of the numbers.
//   - A request becomes a run: driver.open in accept.go commits the fact Accepted.
//   - The decision of an approver becomes a fact: Decisions.Decide in decisions.go, audience.resolve in
//     approval.go, Runner.appendForeign in handle.go. A request that continues a run with its
//     answers: brings in continue.go. Who may: Approval.MayDecide in package journal. What an approver sees: approver.go.
//   - A follower gets its next event: follower.step in eventlog/follow.go, Feed.after in
//     eventlog/feed.go, reader.read in eventlog/reader.go.
//   - The items that a model sees: State.Seen in loop/state.go, modelCaller.request in
//     model.go, Request.modelRequest in request.go. In the process that performs the run, they are
//     in eventlog.Writer.Transcript; earlier turns of a conversation are put in front by Begin in
//     package conversation.
//   - A setting of an org becomes a rule of a run: settings.Resolve in settings/settings.go, called
//     in surface/serve.go; Request.accepted in accept.go puts the policy into the fact Accepted.
//   - The goroutine of a durable run: Runner.start in runner.go begins it, driver.runDetached in accept.go
//     is its body, leaseKeeper.adopt and close in keeper.go count it and wait for it; driver.unregister in
//     drive.go ends it. One that another process has left begins in Runner.takeOver.
package run
