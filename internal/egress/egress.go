package egress

import (
	"net/http"
	"net/netip"
	"slices"
)

// headerLimit caps the header of an answer, in bytes.
const headerLimit = 64 << 10

// Options are what [New] needs besides the policy. The zero value is the host's
// resolver and no listen addresses.
type Options struct {
	// Resolver looks names up, but for those of localhost; nil is the host's
	// own, which reads the hosts file first. Tests replace it.
	Resolver Resolver

	// Listen are the addresses that this process serves on. A guarded client
	// never connects to them, also where the allow-list names them, and by
	// whatever address they can be reached. An unspecified address stands for
	// every address of this host.
	Listen []netip.AddrPort

	// Annotate adds to the headers of requests to providers and to guarded
	// targets; nil adds nothing.
	Annotate Annotate
}

// Egress opens outgoing connections. It is safe for concurrent use; make one
// per process.
type Egress struct {
	policy   Policy
	table    []block
	resolver Resolver
	self     listeners
	guarded  *http.Transport
	operator *http.Transport
	add      Annotate
}

// New returns the process's way out under policy p, which holds for as long as
// the process lives: a kept connection was checked under the same policy as a
// new one, so none has to be closed because of it.
func New(p Policy, o Options) *Egress {
	p.ExtraBlocked, p.Allowlist = slices.Clone(p.ExtraBlocked), slices.Clone(p.Allowlist)
	e := &Egress{policy: p, table: blocks(), resolver: o.Resolver, self: slices.Clone(o.Listen), add: o.Annotate}
	if e.resolver == nil {
		e.resolver = newHostResolver()
	}
	e.guarded = newGuarded(e.dial)
	e.operator = newOperator()
	return e
}

// CloseIdleConnections closes the kept connections of all clients. Call it when
// the process stops.
func (e *Egress) CloseIdleConnections() {
	e.guarded.CloseIdleConnections()
	e.operator.CloseIdleConnections()
}
