package egress

import (
	"net/netip"

	"github.com/turnpike-gateway/turnpike/tool"
)

var _ tool.Blocked = (*BlockedError)(nil)

// BlockedError reports a target that the outbound policy refuses. It implements
// [tool.Blocked]: the run ends, and the model does not see the error.
type BlockedError struct {
	// Reason names the rule: loopback, private, metadata, internal_name, scheme …
	Reason string

	// Addr is the refused address, or the zero Addr if no address was involved.
	Addr netip.Addr

	// Host is the target's host, or empty if it could not be parsed.
	Host string
}

// Error returns ssrf_blocked:{reason}:{ip}, or the host in place of the ip if
// Addr is not set.
func (e *BlockedError) Error() string {
	_, address := e.Blocked()
	return "ssrf_blocked:" + e.Reason + ":" + address
}

// Blocked returns the reason, and the refused address or else the host.
func (e *BlockedError) Blocked() (reason, address string) {
	if e.Addr.IsValid() {
		return e.Reason, e.Addr.String()
	}
	return e.Reason, e.Host
}

// Setting returns the configuration key that can allow the target, or "" if only
// a different URL helps.
func (e *BlockedError) Setting() string {
	switch {
	case e.Reason == "redirect", e.Reason == "self":
		return ""
	case e.Addr.IsValid(), e.Reason == nameInternal.reason(), e.Reason == nameSingleLabel.reason():
		return "outbound.ssrf.allowlist_cidrs"
	}
	return "" // the URL's syntax is refused, or its name has no usable address
}
