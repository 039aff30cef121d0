package egress

import (
	"net"
	"net/http"
	"net/netip"
)

// headerLimit caps the header of an answer, in bytes.
const headerLimit = 64 << 10

// Options are what [New] needs besides the policy. The zero value is the host's
// resolver and no listen addresses.
type Options struct {
	// Resolver looks names up; nil is the host's own. Tests replace it.
	Resolver Resolver

	// Listen are the addresses that this process serves on. A guarded client
	// never connects to them, also where the allow-list names them. An
	// unspecified address stands for every address of this host.
	Listen []netip.AddrPort
}

// Egress opens outgoing connections. It is safe for concurrent use; make one
// per process.
type Egress struct {
	policy   Policy
	table    []block
	resolver Resolver
	self     map[netip.AddrPort]bool
	guarded  *http.Transport
	operator *http.Transport
}

// New returns the process's way out under policy p.
func New(p Policy, o Options) *Egress {
	e := &Egress{policy: p, table: blocks(), resolver: o.Resolver, self: listening(o.Listen)}
	if e.resolver == nil {
		e.resolver = net.DefaultResolver
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

// listening returns the addresses under which this process can be reached.
func listening(listen []netip.AddrPort) map[netip.AddrPort]bool {
	self := make(map[netip.AddrPort]bool, len(listen))
	for _, l := range listen {
		self[netip.AddrPortFrom(l.Addr().Unmap(), l.Port())] = true
		if !l.Addr().IsUnspecified() {
			continue
		}
		for _, addr := range hostAddresses() {
			self[netip.AddrPortFrom(addr, l.Port())] = true
		}
	}
	return self
}

// hostAddresses returns this host's addresses, both loopbacks among them even
// when the interfaces cannot be read.
func hostAddresses() []netip.Addr {
	addrs := []netip.Addr{
		netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback(),
		netip.IPv4Unspecified(), netip.IPv6Unspecified(), // connect(2) reads them as loopback
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return addrs
	}
	for _, a := range interfaces {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				addrs = append(addrs, addr.Unmap())
			}
		}
	}
	return addrs
}
