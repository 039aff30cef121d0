package httpd

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// lazyReads is a connection whose read deadline is set when it matters. For each request
// net/http and the body set and clear the deadline eight times. Nearly all of that happens
// while no Read is in progress, and each change would stop or start a timer.
//
// SetReadDeadline only records the deadline, except during a Read. Read sets it if the
// one that is set would end the Read too late. If that one ends the Read too early, Read
// sets the right one and goes on. So a Read ends exactly when the latest deadline says.
//
// As in net/http, at most one Read may be in progress.
type lazyReads struct {
	net.Conn

	mu      sync.Mutex // guards the fields below
	wanted  time.Time  // the read deadline; zero = none
	set     time.Time  // what Conn has; zero = none
	stale   bool       // set must be replaced before the next Read: it may have passed
	reading bool       // a Read is in progress
}

// Read implements net.Conn.
func (c *lazyReads) Read(p []byte) (int, error) {
	for {
		if err := c.beginRead(); err != nil {
			return 0, err
		}
		n, err := c.Conn.Read(p)
		if !c.endRead(n, err) {
			return n, err
		}
	}
}

// beginRead makes sure that the next Read ends no later than wanted.
func (c *lazyReads) beginRead() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = true
	if c.inTime() && !c.stale {
		return nil
	}
	c.set, c.stale = c.wanted, false
	return c.Conn.SetReadDeadline(c.wanted)
}

// inTime reports whether the deadline that is set ends a Read no later than wanted. It is
// called with mu held.
func (c *lazyReads) inTime() bool {
	return c.wanted.IsZero() || !c.set.IsZero() && !c.set.After(c.wanted)
}

// endRead reports whether a Read that returned n and err must be repeated, because a
// deadline ended it that no longer applies.
func (c *lazyReads) endRead(n int, err error) (again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reading = false
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	c.stale = true
	return n == 0 && (c.wanted.IsZero() || time.Now().Before(c.wanted))
}

// SetReadDeadline implements net.Conn.
func (c *lazyReads) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wanted = t
	if !c.reading || c.inTime() {
		return nil
	}
	c.set, c.stale = t, true
	return c.Conn.SetReadDeadline(t)
}
