package egress

import (
	"context"
	"net/netip"
)

// Judge says what the policy makes of a URL as far as that can be told without
// a lookup: its shape, the class of its name, its address when it is a literal.
// A target without an address is a name that the guard would resolve. The error
// is a [*BlockedError]. Nothing is connected to.
func (e *Egress) Judge(rawURL string) (Target, error) {
	target, err := ParseTarget(rawURL)
	if err != nil {
		return Target{}, err
	}
	if err := e.judge(target.Host, target.Addr); err != nil {
		return Target{}, err
	}
	if target.Addr.IsValid() {
		return target, e.checkConnect(target.Host, netip.AddrPortFrom(target.Addr, target.Port))
	}
	return target, nil
}

// Resolve returns the addresses that a guarded client would connect to for a
// URL, in the order in which it would try them. A [*BlockedError] is a refusal;
// another error says that the name could not be looked up, for which it takes 8
// seconds at most. Nothing is connected to.
func (e *Egress) Resolve(ctx context.Context, rawURL string) ([]netip.Addr, error) {
	target, err := e.Judge(rawURL)
	if err != nil {
		return nil, err
	}
	return e.reachable(ctx, target.Host, target.Addr, target.Port)
}
