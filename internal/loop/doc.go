// Package loop knows the rules of an agent run and nothing else.
//
// A run is a small game. Facts say what happened, Apply folds them into a
// State, Decide says what is to be done next, Allowed says whether a fact may
// follow. All three are pure: no I/O, no clock, no random numbers. Time enters
// only as the At of facts and as the fact [Expired].
//
//	          facts                         action
//	journal ─────────► Apply ─► State ─► Decide ─────► Discover | CallModel | ExecuteTools | Interrupt | Finish
//	   ▲                                     │         PrepareTools | AnswerCalls
//	   └──── the driver performs it and appends what happened ◄┘
//
// Because every decision follows from facts alone, a restart, another replica
// and a replay are the same code: fold, decide, go on. There is no recovery
// mode.
//
//	s := loop.Fold(facts)
//	switch a := loop.Decide(s).(type) {
//	case loop.CallModel: …
//
// Decide is asked when nothing is in flight. A once-call that has started and
// not ended is then a call whose fate nobody knows.
package loop
