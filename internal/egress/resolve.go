package egress

import (
	"context"
	"fmt"
	"net/netip"
)

// maxAddresses is the most addresses that one name may have.
const maxAddresses = 64

// Resolver looks up the addresses of an absolute host name. The name ends in a
// dot, so that no search domain is tried. [*net.Resolver] implements it.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// resolveHost returns the addresses to dial for the host part of a URL. It returns
// a [*BlockedError] if any of the host's addresses is blocked.
func (e *Egress) resolveHost(ctx context.Context, host string) ([]netip.Addr, error) {
	name, addr, reason := parseHost(host)
	if reason != "" {
		return nil, &BlockedError{Reason: reason, Host: host}
	}
	return e.resolveParsed(ctx, name, addr)
}

// resolveParsed is addresses for a parsed host: a valid addr, or else a name.
func (e *Egress) resolveParsed(ctx context.Context, name string, addr netip.Addr) ([]netip.Addr, error) {
	if err := e.checkBeforeLookup(name, addr); err != nil {
		return nil, err
	}
	if addr.IsValid() {
		return []netip.Addr{addr}, nil
	}
	class := classifyName(name)
	switch {
	case class == nameLocalhost:
		return e.localhost(name)
	case e.policy().blocksName(class):
		return e.resolveInternal(ctx, name, class)
	}
	return e.resolvePublic(ctx, name)
}

// localhost returns the loopback addresses that may be dialled. RFC 6761 defines
// localhost and *.localhost as loopback, so no resolver is asked. A blocked
// address is left out and does not block the other.
func (e *Egress) localhost(name string) ([]netip.Addr, error) {
	var addrs []netip.Addr
	for _, addr := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		if e.checkAddress(name, addr) == nil {
			addrs = append(addrs, addr)
		}
	}
	if len(addrs) == 0 {
		return nil, &BlockedError{Reason: nameLocalhost.reason(), Host: name}
	}
	return addrs, nil
}

// resolveForDial returns the addresses to dial for a host and a port, in order. It
// returns a [*BlockedError] if any of them is blocked or leads to a listener of
// this process.
func (e *Egress) resolveForDial(ctx context.Context, name string, addr netip.Addr, port uint16) ([]netip.Addr, error) {
	addrs, err := e.resolveParsed(ctx, name, addr)
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

// resolvePublic looks a name up once and checks every address.
func (e *Egress) resolvePublic(ctx context.Context, name string) ([]netip.Addr, error) {
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
		if err := e.checkAddress(name, addr); err != nil {
			return nil, err
		}
	}
	return addrs, nil
}

// lookUp resolves a name as an absolute name. Its deadline is earlier than the
// dial's, so a slow resolver can be told from a cancelled caller.
func (e *Egress) lookUp(ctx context.Context, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	return e.resolver.LookupNetIP(ctx, "ip", name+".")
}

// resolveInternal resolves a name of a blocked class. The name passes only if
// the allow-list contains every one of its addresses. The error is the same
// whether the name exists, does not exist or takes too long to resolve, so that
// it reveals nothing about the internal network.
func (e *Egress) resolveInternal(ctx context.Context, name string, class nameClass) ([]netip.Addr, error) {
	refusal := &BlockedError{Reason: class.reason(), Host: name}
	addrs, err := e.lookUp(ctx, name)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil || len(addrs) == 0 || len(addrs) > maxAddresses {
		return nil, refusal
	}
	for _, addr := range addrs {
		if !e.policy().allows(addr.Unmap().WithZone("")) {
			return nil, refusal
		}
	}
	return addrs, nil
}

// checkBeforeLookup returns an error for a host that can be refused without a lookup.
func (e *Egress) checkBeforeLookup(name string, addr netip.Addr) error {
	if addr.IsValid() {
		return e.checkAddress(name, addr)
	}
	class := classifyName(name)
	if class == nameLocalhost {
		_, err := e.localhost(name)
		return err
	}
	if e.policy().blocksName(class) && len(e.policy().Allowlist) == 0 {
		return &BlockedError{Reason: class.reason(), Host: name}
	}
	return nil
}

// checkAddress returns a [*BlockedError] if the policy blocks addr, an address of name.
func (e *Egress) checkAddress(name string, addr netip.Addr) error {
	if reason := e.policy().verdict(e.ranges, addr); reason != "" {
		return &BlockedError{Reason: reason, Addr: addr.Unmap().WithZone(""), Host: name}
	}
	return nil
}
