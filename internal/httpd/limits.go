package httpd

import (
	"cmp"
	"time"
)

// Limits bound what clients can use of the server, each alone and all together.
// A zero field means the default in its comment.
type Limits struct {
	// Connections is how many clients may be connected at the same time. The
	// default is 20,000. It is never more than half of the open files that the
	// process may have.
	Connections int

	// Requests is how many model requests may be in progress at the same time.
	// The default is 20,000. It is never more than Connections. Orgs share it;
	// see crowd.
	Requests int

	HeaderTimeout time.Duration // for the whole header of a request; default 10 s
	IdleTimeout   time.Duration // between two requests of a connection; default 120 s

	// BodyTimeout is how long each 1 KiB of a body may take; default 30 s.
	BodyTimeout time.Duration

	// StallTimeout is how long a client may accept nothing of a response that is
	// being sent; default 30 s.
	StallTimeout time.Duration

	// Linger is how long requests are still taken after /readyz answers 503: a balancer that keeps connections may send some until
	// it has asked. Their connections are closed after the answer, and idle ones at the end. 0 = none is taken.
	Linger time.Duration

	// DrainTimeout is how long requests in progress may go on while the server
	// stops, before they are cut off; default 25 s.
	DrainTimeout time.Duration
}

// Limits of a request header. Number and size of fields are about those of Apache
// httpd (LimitRequestFields 100, LimitRequestFieldSize 8190).
const (
	maxHeader = 64 << 10 // bytes, with the request line
	maxField  = 8 << 10  // bytes of one field, or of the request line
	maxFields = 100
)

// defaultRequests equals the default of [Limits.Connections], so that the shares
// of the orgs are the effective limit.
const defaultRequests = 20_000

func (l Limits) withDefaults() Limits {
	connections := cmp.Or(l.Connections, 20_000)
	return Limits{
		Connections:   connections,
		Requests:      min(cmp.Or(l.Requests, defaultRequests), limitToOpenFiles(connections)),
		HeaderTimeout: cmp.Or(l.HeaderTimeout, 10*time.Second),
		IdleTimeout:   cmp.Or(l.IdleTimeout, 120*time.Second),
		BodyTimeout:   cmp.Or(l.BodyTimeout, 30*time.Second),
		StallTimeout:  cmp.Or(l.StallTimeout, 30*time.Second),
		Linger:        l.Linger,
		DrainTimeout:  cmp.Or(l.DrainTimeout, drainTimeout),
	}
}
