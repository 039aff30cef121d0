package egress

import (
	"net"
	"net/http"
)

// relayBuffer is the size of a relayed connection's buffers: two fit the L2
// cache, and a frame of any provider fits one.
const relayBuffer = 64 << 10

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
		WriteBufferSize:        relayBuffer,
		ReadBufferSize:         relayBuffer,
		ForceAttemptHTTP2:      true, // a transport with its own dialer does not try otherwise
	}
}
