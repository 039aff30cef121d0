package egress

import (
	"net/netip"
	"slices"
)

// Policy says which addresses a guarded client may reach. The zero value blocks
// only the ranges without a switch: metadata services, reserved ranges and
// transition ranges. A server starts with [DefaultPolicy].
type Policy struct {
	BlockLoopback  bool // 127.0.0.0/8, ::1, localhost and *.localhost
	BlockPrivate   bool // RFC 1918 ranges and names of internal networks
	BlockLinkLocal bool // 169.254.0.0/16, fe80::/10
	BlockMulticast bool // 224.0.0.0/4, ff00::/8
	BlockCGNAT     bool // 100.64.0.0/10
	BlockULAv6     bool // fc00::/7

	// ExtraBlocked are additional blocked ranges.
	ExtraBlocked []netip.Prefix

	// Allowlist overrides every rule about addresses and names, with one
	// exception: 169.254.169.254 is allowed only by an entry for exactly that
	// address (a /32).
	Allowlist []netip.Prefix
}

// DefaultPolicy blocks every class and has an empty allow-list.
func DefaultPolicy() Policy {
	return Policy{
		BlockLoopback: true, BlockPrivate: true, BlockLinkLocal: true,
		BlockMulticast: true, BlockCGNAT: true, BlockULAv6: true,
	}
}

// verdict returns why addr is blocked, or "" if it is allowed.
func (p Policy) verdict(table []blockedRange, addr netip.Addr) string {
	addr = addr.Unmap().WithZone("")
	if !addr.IsValid() {
		return "no_address"
	}
	if p.allows(addr) {
		return ""
	}
	if contains(p.ExtraBlocked, addr) {
		return "extra_blocked"
	}
	if reason := classify(table, addr); p.blocks(reason) {
		return reason
	}
	return ""
}

// blocks reports whether the policy blocks addresses with the given reason.
func (p Policy) blocks(reason string) bool {
	switch reason {
	case "":
		return false
	case reasonLoopback:
		return p.BlockLoopback
	case reasonPrivate:
		return p.BlockPrivate
	case reasonLinkLocal:
		return p.BlockLinkLocal
	case reasonMulticast:
		return p.BlockMulticast
	case reasonCGNAT:
		return p.BlockCGNAT
	case reasonULA:
		return p.BlockULAv6
	}
	return true
}

// allows reports whether the allow-list contains addr. An IPv6 address that
// carries the metadata address also needs an entry for exactly that address.
func (p Policy) allows(addr netip.Addr) bool {
	metadata := metadataV4()
	if slices.Contains(embedded(addr), metadata) && !p.allowsExactly(metadata) {
		return false
	}
	return contains(p.Allowlist, addr)
}

func (p Policy) allowsExactly(addr netip.Addr) bool {
	for _, prefix := range p.Allowlist {
		if prefix := unmap(prefix); prefix.Addr() == addr && prefix.IsSingleIP() {
			return true
		}
	}
	return false
}

// blocksName reports whether names of the given class are blocked before they
// are resolved.
func (p Policy) blocksName(class nameClass) bool {
	switch class {
	case nameLocalhost:
		return p.BlockLoopback
	case nameInternal, nameSingleLabel:
		return p.BlockPrivate
	}
	return false
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, prefix := range prefixes {
		if unmap(prefix).Contains(addr) {
			return true
		}
	}
	return false
}

// unmap converts a prefix of IPv4-mapped addresses to its IPv4 prefix.
func unmap(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}
