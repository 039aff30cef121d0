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

// errEnv wraps an error of [Server.Env]. Nothing was started.
var errEnv = errors.New("environment")

// A process that ends within stableLife is started again after a delay, which grows up to
// maxStartDelay.
const (
	stableLife    = 10 * time.Second
	maxStartDelay = 5 * time.Second
)

// starts is the history of the child process, for the delay before the next start.
type starts struct {
	last   time.Time
	failed int       // starts in a row that ended within stableLife
	after  time.Time // when it may be started again
	child  *child    // the latest; nil before the first
}

// connectStdio starts the command and makes a session with it. It tries initialize first: almost
// all servers support it, and some end when they get another method.
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
	if err := c.awaitStart(ctx); err != nil {
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

// awaitStart waits until the last process has ended and the next may be started.
func (c *Client) awaitStart(ctx context.Context) error {
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

// ended records that the process ended by itself at the time now. After the first time it is
// started again without a delay. It is called with mu held.
func (s *starts) ended(now time.Time) {
	if now.Sub(s.last) >= stableLife {
		s.failed = 0
		return
	}
	if s.failed++; s.failed > 1 {
		s.after = now.Add(backoff(s.failed, maxStartDelay))
	}
}

// environment returns the child's environment: PATH, HOME, TMPDIR and LANG of this process, and
// the configured variables.
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
	turn  chan struct{} // has an element while a message is written
	limit time.Duration // of one write

	closing sync.Once
}

// next implements [wire]. The error is an [exitError] if the process has ended. A process that
// closes its output is stopped.
func (w *stdioWire) next() (message, error) {
	m, err := w.lines.next()
	if err == nil || errors.Is(err, errFlood) {
		return m, err
	}
	return message{}, w.ended()
}

// ended stops the process, if it runs, and returns its exitError.
func (w *stdioWire) ended() error {
	w.child.stop()
	return &exitError{w.child.status, w.child.tail}
}

// send implements [wire]. One message is written at a time. A process that does not read a
// message in time is killed, because the stream then has a part of a message.
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
