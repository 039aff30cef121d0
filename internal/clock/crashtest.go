//go:build crashtest

package clock

import (
	"os"
	"strings"
	"time"
)

// Wall returns the wall clock time plus the duration in the file that TURNPIKE_CLOCK
// names, such as "-10m". A file that is missing or has other content adds nothing. The
// file is read on each call, so a test can step the clock of a running gateway. As with
// a real step, the monotonic clock does not change.
func Wall() time.Time {
	now := time.Now().Round(0)
	text, err := os.ReadFile(os.Getenv("TURNPIKE_CLOCK"))
	if err != nil {
		return now
	}
	offset, _ := time.ParseDuration(strings.TrimSpace(string(text)))
	return now.Add(offset)
}
