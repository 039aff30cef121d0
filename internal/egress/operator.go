package egress

import (
	"net"
	"net/http"
)

// The sizes of a relayed connection's buffers, which are there for as long as the
// connection: that may be a stream of minutes. A request's header fits the one
// for writing, and its body passes it by.
const (
	readBuffer  = 2 << 10
	writeBuffer = 1 << 10
)

// Operator returns the transport for the base URLs that the operator
// configured, which may be private. It is tuned for a relay: many kept
// connections to few hosts, no overall timeout, no decompression. HTTP/2 is
// negotiated over TLS only. It is the same transport on every call.
func (e *Egress) Operator() *http.Transport { return e.operator }

func newOperator() *http.Transport {
	return &http.Transport{
		Proxy:                  nil,
		DialContext:            (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext,
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxIdleConns:           0, // no limit over all hosts
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        idleTimeout,
		DisableCompression:     true, // bytes pass as they are
		MaxResponseHeaderBytes: headerLimit,
		WriteBufferSize:        writeBuffer,
		ReadBufferSize:         readBuffer,
		ForceAttemptHTTP2:      true, // a transport with its own dialer does not try otherwise
	}
}
