//go:build !crashtest

package clock

import "time"

// Wall returns the wall clock time. The result has no monotonic reading and must not be
// used to measure elapsed time; use time.Now and time.Since.
func Wall() time.Time { return time.Now().Round(0) }
