package egress

import (
	"net/netip"

	"github.com/turnpike-gateway/turnpike/tool"
)

var _ tool.Fatal = (*BlockedError)(nil)

// BlockedError says that the outbound policy refused a target. It implements
// [tool.Fatal]: the run that met it ends, and the model never learns of it.
type BlockedError struct {
	// Reason names the rule: loopback, private, metadata, internal_name, scheme …
	Reason string

	// Addr is the refused address; the zero Addr when none was involved.
	Addr netip.Addr

	// Host is what the target was called; empty when it could not be read.
	Host string
}

// Error returns ssrf_blocked:{reason}:{ip}, with the host where there is no ip.
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

// Setting returns the key of the configuration that can allow the target, or "" if
// only another URL helps.
func (e *BlockedError) Setting() string {
	switch {
	case e.Reason == "redirect", e.Reason == "self":
		return ""
	case e.Addr.IsValid(), e.Reason == nameInternal.reason(), e.Reason == nameSingleLabel.reason():
		return "outbound.ssrf.allowlist_cidrs"
	}
	return "" // the URL is not written in a way that is accepted, or its name has no usable address
}
