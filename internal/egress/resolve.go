package egress

import (
	"context"
	"fmt"
	"net/netip"
)

// maxAddresses is how many addresses one name may have.
const maxAddresses = 64

// Resolver looks up the addresses of an absolute host name (one with a final
// dot, so that no search domain is tried). A [*net.Resolver] is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// addresses returns the addresses that may be dialled for a host as it stands in
// a URL. One forbidden address forbids the host.
func (e *Egress) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	name, addr, reason := readHost(host)
	if reason != "" {
		return nil, &BlockedError{Reason: reason, Host: host}
	}
	return e.vet(ctx, name, addr)
}

// vet is addresses for a host that has been read: a literal address, or a name.
func (e *Egress) vet(ctx context.Context, name string, addr netip.Addr) ([]netip.Addr, error) {
	if err := e.judge(name, addr); err != nil {
		return nil, err
	}
	if addr.IsValid() {
		return []netip.Addr{addr}, nil
	}
	class := classifyName(name)
	switch {
	case class == nameLocalhost:
		return e.localhost(name)
	case e.policy.blocksName(class):
		return e.allowedAddresses(ctx, name, class)
	}
	return e.resolve(ctx, name)
}

// localhost returns the loopback addresses that may be dialled. The names of
// localhost are loopback by definition (RFC 6761): nobody is asked for them, so
// that one address which the policy refuses does not forbid the other.
func (e *Egress) localhost(name string) ([]netip.Addr, error) {
	var addrs []netip.Addr
	for _, addr := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		if e.check(name, addr) == nil {
			addrs = append(addrs, addr)
		}
	}
	if len(addrs) == 0 {
		return nil, &BlockedError{Reason: nameLocalhost.reason(), Host: name}
	}
	return addrs, nil
}

// reachable returns the addresses that may be dialled for a host and a port, in
// the order in which they are tried. One that must not be connected to forbids
// the host.
func (e *Egress) reachable(ctx context.Context, name string, addr netip.Addr, port uint16) ([]netip.Addr, error) {
	addrs, err := e.vet(ctx, name, addr)
	if err != nil {
		return nil, err
	}
	for _, addr := range addrs {
		if err := e.checkConnect(name, netip.AddrPortFrom(addr, port)); err != nil {
			return nil, err
		}
	}
	return addrs, nil
}

// resolve looks a name up once and checks every answer.
func (e *Egress) resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	addrs, err := e.lookUp(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", name, err)
	}
	switch {
	case len(addrs) == 0:
		return nil, &BlockedError{Reason: "no_address", Host: name}
	case len(addrs) > maxAddresses:
		return nil, &BlockedError{Reason: "too_many_addresses", Host: name}
	}
	for _, addr := range addrs {
		if err := e.check(name, addr); err != nil {
			return nil, err
		}
	}
	return addrs, nil
}

// lookUp asks for a name's addresses, as an absolute name. It gives up while
// there is time left to tell a slow resolver from a cancelled caller.
func (e *Egress) lookUp(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	return e.resolver.LookupNetIP(ctx, "ip", name+".")
}

// allowedAddresses resolves a name of a refused class: it passes only when the
// allow-list names every one of its addresses. The refusal is the same whether
// the name exists or not, and when the lookup takes too long, so that it tells
// nobody what the inner network knows.
func (e *Egress) allowedAddresses(ctx context.Context, name string, class nameClass) ([]netip.Addr, error) {
	refusal := &BlockedError{Reason: class.reason(), Host: name}
	addrs, err := e.lookUp(ctx, name)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil || len(addrs) == 0 || len(addrs) > maxAddresses {
		return nil, refusal
	}
	for _, addr := range addrs {
		if !e.policy.allows(addr.Unmap().WithZone("")) {
			return nil, refusal
		}
	}
	return addrs, nil
}

// judge refuses what is refused before any lookup.
func (e *Egress) judge(name string, addr netip.Addr) error {
	if addr.IsValid() {
		return e.check(name, addr)
	}
	class := classifyName(name)
	if class == nameLocalhost {
		_, err := e.localhost(name)
		return err
	}
	if e.policy.blocksName(class) && len(e.policy.Allowlist) == 0 {
		return &BlockedError{Reason: class.reason(), Host: name}
	}
	return nil
}

// check judges one address of the host called name.
func (e *Egress) check(name string, addr netip.Addr) error {
	if reason := e.policy.verdict(e.table, addr); reason != "" {
		return &BlockedError{Reason: reason, Addr: addr.Unmap().WithZone(""), Host: name}
	}
	return nil
}
