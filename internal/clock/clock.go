// Package clock provides the two clocks of the gateway.
//
//   - The wall clock gives the time of day. Users and NTP set it, so it may step in
//     either direction at any time. [Wall] reads it. It must be used for timestamps,
//     and for times that must hold across restarts: the expiry of an
//     Idempotency-Key, of a handover and of a cached result.
//   - The monotonic clock measures elapsed time. It cannot be set. It must be used
//     for everything that a process measures or waits for: leases, deadlines,
//     retries, timeouts, rate limits, latencies. Within a process these are time.Now
//     and time.Since, timers and contexts.
//
// A monotonic time that is stored or compared as a number comes from a [Steady]: the
// wall clock at one moment, plus the monotonic time since then. There are two users:
//
//   - The store has one Steady from Open to Close. It grants and compares leases with
//     it. The SQLite store is used by one process at a time and ends the leases of
//     the previous process when it opens, so leases of two Steadies are never
//     compared.
//   - Each run has one in the process that owns it. It starts at the wall clock, or
//     at the last fact of the journal if that is later. It gives all facts of the run
//     their At, which therefore never decreases, and whose differences are elapsed
//     times. Deadlines are computed from them.
//
// One Steady for the whole process would be simpler. But after the wall clock is
// corrected (after a boot with a wrong clock, and after each suspend), all its times
// would be wrong until the next restart. With one Steady for each run, the next run has
// the correct time.
//
// On Linux the monotonic clock does not advance while the machine is suspended. The
// suspended time does not count for leases and deadlines. The facts of runs in progress
// are behind the wall clock by that time until those runs end.
//
// With the build tag crashtest, Wall adds the duration in the file that TURNPIKE_CLOCK
// names. Tests write to the file to step the clock of a running gateway.
package clock

import "time"

// Steady is a clock that starts at a given time and advances with the monotonic clock.
// The difference of two readings is the time that elapsed between them. It is safe for
// concurrent use. The zero Steady is not valid; use [NewSteady].
type Steady struct {
	origin time.Time // without a monotonic reading
	began  time.Time // when the clock read origin; with a monotonic reading
}

// NewSteady returns a Steady that starts at origin now.
func NewSteady(origin time.Time) Steady {
	return Steady{origin: origin.Round(0), began: time.Now()}
}

// Now returns the time. It has no monotonic reading.
func (s Steady) Now() time.Time { return s.origin.Add(time.Since(s.began)) }
