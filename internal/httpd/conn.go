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

// gate is a listener through which only so many connections pass at a time. One
// more is told so and closed, before anything of it is read.
type gate struct {
	net.Listener
	most  int
	stall time.Duration
	log   *slog.Logger

	open     atomic.Int64
	reported time.Time // used by Accept only, of which there is one
}

// newGate returns l with the limits, of which the number of connections may be
// lowered to what the process can open.
func newGate(l net.Listener, limits Limits, log *slog.Logger) *gate {
	most := affordable(limits.Connections)
	if most < limits.Connections {
		log.Info("fewer clients may be connected at a time than configured: the process may not open enough files (ulimit -n)",
			"configured", limits.Connections, "connections", most)
	}
	return &gate{Listener: l, most: most, stall: limits.StallTimeout, log: log}
}

// affordable returns how many of the connections the process can open.
func affordable(connections int) int {
	if files, known := openFiles(); known && mostOf(files) < uint64(connections) {
		return int(mostOf(files))
	}
	return connections
}

// mostOf returns how many clients fit into so many files: each may need a second
// one, for the connection to a provider, and the gateway has its own.
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

// turnAway says that the gateway is full. It waits for nothing: the answer fits
// into the buffer of a new connection.
func (g *gate) turnAway(c net.Conn) {
	now := time.Now()
	if now.Sub(g.reported) > time.Minute {
		g.reported = now
		g.log.Warn("clients are turned away: too many are connected (max_connections)", "connections", g.most)
	}
	_ = c.SetWriteDeadline(now.Add(10 * time.Millisecond))
	_, _ = fmt.Fprintf(c, fullAnswer, id.NewOrdered("req_"))
	_ = c.Close()
}

// stride is how much of an answer a client must take in the time of a stall.
const stride = 64 << 10

// conn is a connection on which no write waits for ever. A client that takes
// nothing for a while is disconnected, which ends its request as leaving does;
// one that takes a little is waited for. A deadline that somebody sets on the
// answer itself counts instead, until it is taken away.
type conn struct {
	net.Conn
	stall time.Duration
	left  func()

	theirs atomic.Bool               // somebody else has set a deadline
	fresh  atomic.Pointer[time.Time] // until when ours is not moved again; nil = it is moved. A time.Now, which no step of the wall clock moves
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

// arm moves the deadline, unless it was moved a moment ago: a stream of small
// pieces pays for a look at the clock.
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

// CloseWrite lets the server end an answer before it closes a connection on
// which the client is still sending.
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
