// Package clock reads the time.
//
// A machine has two clocks, and the gateway uses each for its own purpose.
//
//   - The wall clock says what time it is. People and NTP set it, so it may be
//     stepped in either direction at any moment. [Wall] reads it. It is used for
//     timestamps, and for what must hold across restarts: the expiry of an
//     Idempotency-Key, of a handover and of a cached result.
//   - The monotonic clock says how much time has passed. Nobody can set it. It
//     is used for everything that a process measures or waits for: leases,
//     deadlines, retries, timeouts, rate limits, latencies. Within a process
//     that is time.Now and time.Since, timers and contexts.
//
// Where a time of the second kind must be a number that others read, it comes
// from a [Steady]: the wall clock as it was at one moment, plus the monotonic time
// since then. There are two kinds of user:
//
//   - The store has one Steady from its opening until it is closed. Leases are
//     given and compared by it, and by nothing else. The SQLite store has one
//     process at a time and ends the leases of the process before when it opens, so
//     leases of two Steadies are never compared.
//   - Each run has one in the process that works on it. It begins at the wall clock,
//     or at the last fact of the journal if that is later. All of the run's facts are
//     dated by it: their at never goes backwards, and the differences between them
//     are the times that really passed. Deadlines are computed from them.
//
// A single Steady for the whole process was the alternative. It would date
// everything wrongly, until the next restart, once the wall clock has been
// corrected: after a boot with a wrong clock, and after every suspend. With one for
// each run, the next run has the right time.
//
// While the machine is suspended the monotonic clock stands still on Linux. That
// time counts for no lease and no deadline: the gateway goes on as if nothing had
// happened, and the facts of runs that were under way stay behind the wall clock by
// it until the runs end.
//
// The program that is built with the tag crashtest adds the duration in the file
// that TURNPIKE_CLOCK names to the wall clock. A test writes to the file to step
// the clock of a running gateway.
package clock

import "time"

// Steady is a clock that nobody can set: it begins at a time and goes on with the
// monotonic clock. Two readings are as far apart as they are in real time. It is
// safe for concurrent use. The zero Steady is not useful; use [NewSteady].
type Steady struct {
	origin time.Time // without a monotonic reading
	began  time.Time // with one
}

// NewSteady returns a Steady that reads origin now.
func NewSteady(origin time.Time) Steady {
	return Steady{origin: origin.Round(0), began: time.Now()}
}

// Now returns the time. It has no monotonic reading.
func (s Steady) Now() time.Time { return s.origin.Add(time.Since(s.began)) }
