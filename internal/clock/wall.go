//go:build !crashtest

package clock

import "time"

// Wall returns what the wall clock says. The result has no monotonic reading, so
// that nobody measures with it: use time.Now and time.Since to measure.
func Wall() time.Time { return time.Now().Round(0) }
