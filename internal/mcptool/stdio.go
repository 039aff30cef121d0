package mcptool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// errEnv wraps the failure of [Server.Env]: nothing was started.
var errEnv = errors.New("environment")

// A server that dies before this has died at once, and is started again after a
// rest that grows to the longest.
const (
	steadyLife  = 10 * time.Second
	longestRest = 5 * time.Second
)

// starts remembers how the child process fared.
type starts struct {
	last  time.Time
	died  int       // how often in a row it died at once
	after time.Time // when it may be started again
	child *child    // the latest; nil before the first
}

// connectStdio starts the command and agrees with it on a revision. Servers of
// today know initialize, and some die of anything else, so that comes first.
func (c *Client) connectStdio(ctx context.Context, version string) (*session, outcome) {
	if version == "" {
		version = sessionVersion
	}
	s, o := c.startStdio(ctx, version)
	if s == nil && o.rpc != nil && o.method == methodInitialize && version != statelessVersion {
		return c.startStdio(ctx, statelessVersion)
	}
	return s, o
}

func (c *Client) startStdio(ctx context.Context, version string) (*session, outcome) {
	if err := c.rest(ctx); err != nil {
		return nil, outcome{err: err, connecting: true}
	}
	env, err := c.environment(ctx)
	if err != nil {
		return nil, outcome{err: errors.Join(errEnv, err), connecting: true}
	}
	child, err := startChild(c.server.Command, env, c.log)
	c.mu.Lock()
	c.starts.last, c.starts.child = time.Now(), child
	c.mu.Unlock()
	if err != nil {
		return nil, outcome{err: err, connecting: true}
	}
	w := &stdioWire{child: child, lines: newLines(child.stdout), turn: make(chan struct{}, 1), limit: c.server.Timeout}
	return c.connectLink(ctx, Stdio, w, version)
}

// rest waits until the last process is gone and the next may be started.
func (c *Client) rest(ctx context.Context) error {
	c.mu.Lock()
	last := c.starts
	c.mu.Unlock()
	if last.child != nil {
		select {
		case <-last.child.exited:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if wait := time.Until(last.after); wait > 0 {
		return sleep(ctx, wait)
	}
	return nil
}

// ended notes that the process ended by itself at now. The first time it is
// started again at once. The caller holds mu.
func (s *starts) ended(now time.Time) {
	if now.Sub(s.last) >= steadyLife {
		s.died = 0
		return
	}
	if s.died++; s.died > 1 {
		s.after = now.Add(backoff(s.died, longestRest))
	}
}

// environment returns the child's environment: little of ours, and what the
// configuration says.
func (c *Client) environment(ctx context.Context) ([]string, error) {
	values := map[string]string{}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG"} {
		if v, ok := os.LookupEnv(name); ok {
			values[name] = v
		}
	}
	if c.server.Env != nil {
		own, err := c.server.Env(ctx)
		if err != nil {
			return nil, err
		}
		for name, v := range own {
			if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(v, "\x00") {
				return nil, fmt.Errorf("%q cannot be set", name)
			}
			values[name] = v
		}
	}
	env := make([]string, 0, len(values))
	for name, v := range values {
		env = append(env, name+"="+v)
	}
	slices.Sort(env)
	return env, nil
}

// stdioWire carries messages to and from a child, one line each.
type stdioWire struct {
	child *child
	lines *lines
	turn  chan struct{} // holds one while somebody writes
	limit time.Duration // of one write

	closing sync.Once
}

// next implements [wire]. The error is an [exitError] when the process ended, or
// closed its output and was ended for that.
func (w *stdioWire) next() (message, error) {
	m, err := w.lines.next()
	if err == nil || errors.Is(err, errFlood) {
		return m, err
	}
	return message{}, w.ended()
}

// ended ends the process, unless it has ended, and says how it did.
func (w *stdioWire) ended() error {
	w.child.stop()
	return &exitError{w.child.status, w.child.tail}
}

// send implements [wire]. Others wait while one writes; a server that does not
// read in time has left the stream unusable and is ended.
func (w *stdioWire) send(ctx context.Context, data []byte, x *exchange) error {
	select {
	case w.turn <- struct{}{}:
		defer func() { <-w.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.child.exited:
		return fmt.Errorf("%w: %w", errSessionLost, w.ended())
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !x.startSending() {
		return errNoAnswer
	}
	defer x.endSending()
	x.update(func(o *outcome) { o.sent = true })
	_ = w.child.stdin.SetWriteDeadline(time.Now().Add(w.limit))
	n, err := w.child.stdin.Write(append(data, '\n'))
	if err == nil {
		return nil
	}
	if n == 0 {
		x.update(func(o *outcome) { o.sent = false })
		return fmt.Errorf("%w: %w", errSessionLost, w.ended())
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return w.ended()
	}
	w.child.kill()
	return fmt.Errorf("%w: the server does not read", errNoAnswer)
}

// close implements [wire].
func (w *stdioWire) close() {
	w.closing.Do(func() {
		w.child.stop()
		w.child.release()
	})
}
