package httpd

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/id"
)

// gate is a listener with a limit on open connections. It answers a connection
// above the limit with 503 and closes it, without reading from it.
type gate struct {
	net.Listener
	most  int
	stall time.Duration
	log   *slog.Logger

	open     atomic.Int64
	reported time.Time // owned by Accept, which only one goroutine calls
}

// newGate returns l with limits. The limit on connections is lowered to what the
// process's limit on open files allows.
func newGate(l net.Listener, limits Limits, log *slog.Logger) *gate {
	most := affordable(limits.Connections)
	if most < limits.Connections {
		log.Info("max_connections is lowered: the process may not open more files (ulimit -n)",
			"configured", limits.Connections, "connections", most)
	}
	return &gate{Listener: l, most: most, stall: limits.StallTimeout, log: log}
}

// affordable returns the smaller of connections and what the process's limit on
// open files allows.
func affordable(connections int) int {
	if files, known := openFiles(); known && mostOf(files) < uint64(connections) {
		return int(mostOf(files))
	}
	return connections
}

// mostOf returns how many clients fit into a limit of that many open files. A
// client needs two: its connection and one to a provider. 64 are kept for the
// gateway itself.
func mostOf(files uint64) uint64 {
	const own = 64
	if files < 2*own {
		return own / 2
	}
	return (files - own) / 2
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if g.open.Add(1) <= int64(g.most) {
			return &conn{Conn: c, stall: g.stall, left: sync.OnceFunc(func() { g.open.Add(-1) })}, nil
		}
		g.open.Add(-1)
		g.turnAway(c)
	}
}

const fullAnswer = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n" +
	"Turnpike-Request-Id: %[1]s\r\nX-Request-Id: %[1]s\r\n\r\n" +
	`{"error":{"message":"too many clients are connected; try again","type":"unavailable_error","param":null,"code":"too_many_connections"}}` + "\n"

// turnAway answers with 503 and closes c. It never blocks for longer than 10 ms:
// the response fits into the send buffer of a new connection.
func (g *gate) turnAway(c net.Conn) {
	now := time.Now()
	if now.Sub(g.reported) > time.Minute {
		g.reported = now
		g.log.Warn("connections are refused: too many clients are connected (max_connections)", "connections", g.most)
	}
	_ = c.SetWriteDeadline(now.Add(10 * time.Millisecond))
	_, _ = fmt.Fprintf(c, fullAnswer, id.NewOrdered("req_"))
	_ = c.Close()
}

// stride is how many bytes of a response a client must accept in StallTimeout.
const stride = 64 << 10

// conn is a connection whose writes have a deadline. A client that accepts
// nothing for the stall timeout is disconnected, which cancels its request; one
// that accepts stride bytes in that time keeps its connection. A write deadline
// that a handler sets replaces this one until the handler clears it.
type conn struct {
	net.Conn
	stall time.Duration
	left  func()

	theirs atomic.Bool               // a handler has set a write deadline
	fresh  atomic.Pointer[time.Time] // the deadline is not extended before this time; nil = extend at once. Monotonic
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	if c.theirs.Load() {
		return c.Conn.Write(p)
	}
	written := 0
	for {
		if err := c.arm(); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(p[written:min(len(p), written+stride)])
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// arm extends the write deadline to one stall timeout from now. It does so at
// most eight times per timeout, to keep streams of small writes cheap.
func (c *conn) arm() error {
	now := time.Now()
	if fresh := c.fresh.Load(); fresh != nil && now.Before(*fresh) {
		return nil
	}
	fresh := now.Add(c.stall / 8)
	c.fresh.Store(&fresh)
	return c.Conn.SetWriteDeadline(now.Add(c.stall))
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.theirs.Store(!t.IsZero())
	c.fresh.Store(nil)
	return c.Conn.SetWriteDeadline(t)
}

// CloseWrite lets net/http half-close the connection, so that a client that is
// still sending can read the response.
func (c *conn) CloseWrite() error {
	if w, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.left()
	return c.Conn.Close()
}
