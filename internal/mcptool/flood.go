package mcptool

import (
	"errors"
	"time"
)

// A server may send this much that nobody asked for, in this time.
const (
	maxNoise  = maxAnswer // bytes
	noiseTime = 10 * time.Second
)

// errFlood ends a stream on which a server sends too much that answers nothing.
var errFlood = errors.New("server floods its stream")

// noise counts the bytes on a lasting stream that answer no request. A stream
// as a whole has no limit, so that sessions can live long; its rate has one.
type noise struct {
	bytes int
	since time.Time
}

// add counts n bytes that came at now and returns errFlood if they are too many.
func (s *noise) add(n int, now time.Time) error {
	if now.Sub(s.since) > noiseTime {
		s.bytes, s.since = 0, now
	}
	if s.bytes += n; s.bytes > maxNoise {
		return errFlood
	}
	return nil
}
