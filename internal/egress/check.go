package egress

import (
	"context"
	"net/netip"
)

// CheckURL checks a URL as far as possible without a lookup: its syntax, the class
// of its name, and its addresses if the host is an IP literal or a name of
// localhost. A Target without an address still has to be resolved. The error is a
// [*BlockedError]. It opens no connection.
func (e *Egress) CheckURL(rawURL string) (Target, error) {
	target, err := ParseTarget(rawURL)
	if err != nil {
		return Target{}, err
	}
	if err := e.checkBeforeLookup(target.Host, target.Addr); err != nil {
		return Target{}, err
	}
	var known []netip.Addr
	switch {
	case target.Addr.IsValid():
		known = []netip.Addr{target.Addr}
	case classifyName(target.Host) == nameLocalhost:
		known, _ = e.localhost(target.Host) // checked above
	}
	for _, addr := range known {
		if err := e.checkConnect(target.Host, netip.AddrPortFrom(addr, target.Port)); err != nil {
			return target, err
		}
	}
	return target, nil
}

// Resolve returns the addresses that a guarded client would try for a URL, in
// order. A refused target is a [*BlockedError]; any other error means that the
// lookup failed. A lookup takes at most 8 seconds. It opens no connection.
func (e *Egress) Resolve(ctx context.Context, rawURL string) ([]netip.Addr, error) {
	target, err := e.CheckURL(rawURL)
	if err != nil {
		return nil, err
	}
	return e.resolveForDial(ctx, target.Host, target.Addr, target.Port)
}
