// Package loop holds the rules of an agent run. It performs no I/O.
//
//	          facts                         action
//	journal ─────────► Apply ─► State ─► Decide ─────► AddInput | Discover | RunHooks | Route | CallModel | Compact
//	   ▲                                     │         PrepareTools | ExecuteTools | AnswerCalls | Interrupt | Pause | Finish
//	   └──── the driver performs it and appends what happened ◄┘
//
// A [Fact] records what happened. [Apply] folds facts into a [State]. [Decide]
// returns the next [Action]. [Allowed] checks a fact before it is appended. All of
// them are pure functions: no clock, no random numbers, no I/O. Time enters only as
// Fact.At and as the fact [Expired].
//
//	s := loop.Fold(facts)
//	switch a := loop.Decide(s).(type) {
//	case loop.CallModel: …
//
// Decisions depend on the facts only. A restart, a takeover by another replica and
// a replay therefore run the same code: fold the journal, decide, continue. There
// is no recovery mode.
//
// The driver must call Decide only when no model call and no tool call is in
// flight. Decide treats a call that has started and not ended as lost: its outcome
// is unknown.
package loop
