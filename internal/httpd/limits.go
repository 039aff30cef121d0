package httpd

import (
	"cmp"
	"time"
)

// Limits are what one client, and all of them together, may take of the server.
// A field that is 0 has the default that stands beside it, from
// reference/reliability 4.6.
type Limits struct {
	// Connections is how many clients may be connected at a time: 20,000, and
	// never more than half of the files that the process may open.
	Connections int

	// Requests is how many requests for a model may be under way at a time:
	// 20,000, and never more than may be connected. See crowd for an org's share.
	Requests int

	HeaderTimeout time.Duration // for the whole header of a request: 10 s
	IdleTimeout   time.Duration // between two requests of a connection: 120 s

	// BodyTimeout is how long 1 KiB of a body, or its end, may take: 30 s.
	BodyTimeout time.Duration

	// StallTimeout is how long a client may take none of an answer that waits
	// for it: 30 s.
	StallTimeout time.Duration
}

// The limits of a header, from reference/reliability 4.6.
const (
	maxHeader = 64 << 10 // bytes, with the request line
	maxField  = 8 << 10  // bytes of one field, or of the request line
	maxFields = 100
)

// defaultRequests is how many requests for a model may be under way: as many as
// may be connected, so that it is the orgs' shares that count.
const defaultRequests = 20_000

func (l Limits) withDefaults() Limits {
	connections := cmp.Or(l.Connections, 20_000)
	return Limits{
		Connections:   connections,
		Requests:      min(cmp.Or(l.Requests, defaultRequests), affordable(connections)),
		HeaderTimeout: cmp.Or(l.HeaderTimeout, 10*time.Second),
		IdleTimeout:   cmp.Or(l.IdleTimeout, 120*time.Second),
		BodyTimeout:   cmp.Or(l.BodyTimeout, 30*time.Second),
		StallTimeout:  cmp.Or(l.StallTimeout, 30*time.Second),
	}
}
