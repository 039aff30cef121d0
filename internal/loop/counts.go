package loop

// Counts are the totals of a run. State, the list of runs, events, spans and logs report
// these. The zero value is the one before the first fact.
type Counts struct {
	Rounds int   // model calls that returned a turn; those of a raw relay, and of an answer whose rest follows, do not count
	Calls  int   // tool calls that the gateway started; further attempts at a call do not count
	Tokens int64 // input and output tokens that providers counted, for failed model calls too
}

// After returns the counts after a fact.
func (c Counts) After(body Body) Counts {
	switch b := body.(type) {
	case Turn:
		if b.Purpose == PurposeTurn && !b.Continues {
			c.Rounds++
		}
		c.Tokens += b.Usage.Input + b.Usage.Output
	case Compacted:
		c.Tokens += b.Usage.Input + b.Usage.Output
	case TurnFailed:
		c.Tokens += b.Usage.Input + b.Usage.Output
	case CallStarted:
		if b.Attempt == 1 {
			c.Calls++
		}
	case Accepted, Blocked, CallDone, CallPrepared, CallResolved, CallWaiting, CancelRequested, Catalogued,
		Expired, Finished, HookRan, InputAdded, LimitsRaised, Parked, Paused, ReserveRefused, Reserved, Resumed, Routed, TurnStarted: // not counted
	}
	return c
}
