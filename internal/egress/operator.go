package egress

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

// Buffer sizes of a relayed connection, in bytes. Each connection holds both for
// its lifetime, which is minutes for a stream. A typical request header fits the
// write buffer; net/http writes a large body past it.
const (
	readBuffer  = 2 << 10
	writeBuffer = 2 << 10
)

// Operator returns the transport for base URLs that the operator configured,
// which may be private. It is tuned for a relay: many idle connections to few
// hosts, no overall timeout, no decompression. HTTP/2 is negotiated over TLS
// only. Every call returns the same transport.
func (e *Egress) Operator() *http.Transport { return e.operator }

func newOperator() *http.Transport {
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            dialOperator,
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxIdleConns:           0, // no limit over all hosts
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        idleTimeout,
		DisableCompression:     true, // response bytes pass unchanged
		MaxResponseHeaderBytes: maxResponseHeader,
		WriteBufferSize:        writeBuffer,
		ReadBufferSize:         readBuffer,
		ForceAttemptHTTP2:      true, // net/http disables HTTP/2 if DialContext is set
	}
}

// copies are buffers for bodies that are sent.
var copies = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// sendingConn is a connection whose ReadFrom copies through a pooled buffer. That of [net.TCPConn] allocates one
// for each body.
type sendingConn struct{ net.Conn }

// ReadFrom implements io.ReaderFrom.
func (c sendingConn) ReadFrom(r io.Reader) (int64, error) {
	buf := copies.Get().(*[]byte)
	defer copies.Put(buf)
	return io.CopyBuffer(struct{ io.Writer }{c.Conn}, struct{ io.Reader }{r}, *buf)
}

func dialOperator(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return sendingConn{conn}, nil
}

// DialOperator connects to an address, host:port, that the operator configured, which may be private, for protocols
// other than HTTP.
func (e *Egress) DialOperator(ctx context.Context, network, address string) (net.Conn, error) {
	if network != "tcp" {
		return nil, fmt.Errorf("dial: network %q; only tcp is allowed", network)
	}
	d := net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
	return d.DialContext(ctx, network, address)
}
