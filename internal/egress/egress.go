package egress

import (
	"net/http"
	"net/netip"
	"slices"
	"sync/atomic"
)

// maxResponseHeader is the most response header that is read, in bytes.
const maxResponseHeader = 64 << 10

// Options are the optional parameters of [New]. The zero value uses the host's
// resolver, serves on no address and annotates nothing.
type Options struct {
	// Resolver looks up every name except localhost and *.localhost. Nil is the
	// host's resolver, which reads the hosts file first.
	Resolver Resolver

	// Listen are the addresses that this process serves on. A guarded client
	// never connects to them, through any address that leads to them and even
	// if the allow-list contains it. An unspecified address means every address
	// of this host.
	Listen []netip.AddrPort

	// Annotate adds headers to requests to providers and to guarded targets.
	// Nil adds nothing.
	Annotate Annotate
}

// Egress opens outgoing connections. It is safe for concurrent use. Create one
// per process.
type Egress struct {
	current        atomic.Pointer[Policy]
	ranges         []blockedRange
	resolver       Resolver
	listen         listeners
	guarded        atomic.Pointer[http.Transport] // its connections have passed the current policy
	operator       *http.Transport
	annotateHeader Annotate
}

// New returns an Egress that applies policy p, which is copied.
func New(p Policy, o Options) *Egress {
	e := &Egress{ranges: specialRanges(), resolver: o.Resolver, listen: slices.Clone(o.Listen), annotateHeader: o.Annotate}
	if e.resolver == nil {
		e.resolver = newHostResolver()
	}
	e.SetPolicy(p)
	e.operator = newOperator()
	return e
}

// SetPolicy applies another policy to requests that begin afterwards. Requests in
// progress keep their connections, which no later request uses. It is called by one
// goroutine at a time.
func (e *Egress) SetPolicy(p Policy) {
	p.ExtraBlocked, p.Allowlist = slices.Clone(p.ExtraBlocked), slices.Clone(p.Allowlist)
	e.current.Store(&p) // before the transport: its connections pass this policy
	if was := e.guarded.Swap(newGuarded(e.dial)); was != nil {
		was.CloseIdleConnections() // and each connection that becomes idle
	}
}

func (e *Egress) policy() *Policy { return e.current.Load() }

// CloseIdleConnections closes the idle connections of all clients. Call it when
// the process stops.
func (e *Egress) CloseIdleConnections() {
	e.guarded.Load().CloseIdleConnections()
	e.operator.CloseIdleConnections()
}
