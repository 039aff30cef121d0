package httpd

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/id"
)

// limitListener is a listener with a limit on open connections. It answers a connection
// above the limit with 503 and closes it, without reading from it.
type limitListener struct {
	net.Listener
	limit        int
	stallTimeout time.Duration
	log          *slog.Logger

	open     atomic.Int64
	reported time.Time // owned by Accept, which only one goroutine calls
}

// newLimitListener returns l with limits. The limit on connections is lowered to what the
// process's limit on open files allows.
func newLimitListener(l net.Listener, limits Limits, log *slog.Logger) *limitListener {
	most := limitToOpenFiles(limits.Connections)
	if most < limits.Connections {
		log.Info("max_connections is lowered: the process may not open more files (ulimit -n)",
			"configured", limits.Connections, "connections", most)
	}
	return &limitListener{Listener: l, limit: most, stallTimeout: limits.StallTimeout, log: log}
}

// limitToOpenFiles returns the smaller of connections and what the process's limit on
// open files allows.
func limitToOpenFiles(connections int) int {
	if files, known := openFileLimit(); known && maxClients(files) < uint64(connections) {
		return int(maxClients(files))
	}
	return connections
}

// maxClients returns how many clients fit into a limit of that many open files. A
// client needs two: its connection and one to a provider. 64 are kept for the
// gateway itself.
func maxClients(files uint64) uint64 {
	const own = 64
	if files < 2*own {
		return own / 2
	}
	return (files - own) / 2
}

// Accept implements net.Listener.
func (g *limitListener) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if g.open.Add(1) <= int64(g.limit) {
			return &conn{lazyReads: lazyReads{Conn: c}, stallTimeout: g.stallTimeout, onClose: sync.OnceFunc(func() { g.open.Add(-1) })}, nil
		}
		g.open.Add(-1)
		g.refuse(c)
	}
}

const tooManyConnections = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n" +
	"Turnpike-Request-Id: %[1]s\r\nX-Request-Id: %[1]s\r\n\r\n" +
	`{"error":{"message":"too many clients are connected; try again","type":"unavailable_error","param":null,"code":"too_many_connections"}}` + "\n"

// refuse answers with 503 and closes c. It never blocks for longer than 10 ms:
// the response fits into the send buffer of a new connection.
func (g *limitListener) refuse(c net.Conn) {
	now := time.Now()
	if now.Sub(g.reported) > time.Minute {
		g.reported = now
		g.log.Warn("connections are refused: too many clients are connected (max_connections)", "connections", g.limit)
	}
	_ = c.SetWriteDeadline(now.Add(10 * time.Millisecond))
	_, _ = fmt.Fprintf(c, tooManyConnections, id.NewOrdered("req_"))
	_ = c.Close()
}

// writeChunk is how many bytes of a response a client must accept in StallTimeout.
const writeChunk = 64 << 10

// conn is a connection whose writes have a deadline. A client that accepts
// nothing for the stall timeout is disconnected, which cancels its request; one
// that accepts stride bytes in that time keeps its connection. A write deadline
// that a handler sets replaces this one until the handler clears it.
type conn struct {
	lazyReads
	stallTimeout time.Duration
	onClose      func()

	handlerDeadline atomic.Bool               // a handler has set a write deadline
	extendAfter     atomic.Pointer[time.Time] // the deadline is not extended before this time; nil = extend at once. Monotonic
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	if c.handlerDeadline.Load() {
		return c.Conn.Write(p)
	}
	written := 0
	for {
		if err := c.extendDeadline(); err != nil {
			return written, err
		}
		n, err := c.Conn.Write(p[written:min(len(p), written+writeChunk)])
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// extendDeadline extends the write deadline to one stall timeout from now. It does so at
// most eight times per timeout, to keep streams of small writes cheap.
func (c *conn) extendDeadline() error {
	now := time.Now()
	if fresh := c.extendAfter.Load(); fresh != nil && now.Before(*fresh) {
		return nil
	}
	fresh := now.Add(c.stallTimeout / 8)
	c.extendAfter.Store(&fresh)
	return c.Conn.SetWriteDeadline(now.Add(c.stallTimeout))
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.handlerDeadline.Store(!t.IsZero())
	c.extendAfter.Store(nil)
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
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
	c.onClose()
	return c.Conn.Close()
}
