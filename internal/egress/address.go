package egress

import "net/netip"

// Reasons that a switch of [Policy] can turn off. All other reasons always apply.
const (
	reasonLoopback  = "loopback"
	reasonPrivate   = "private"
	reasonLinkLocal = "link_local"
	reasonMulticast = "multicast"
	reasonCGNAT     = "cgnat"
	reasonULA       = "ula"
	reasonMetadata  = "metadata"
)

// blockedRange is an address range that is blocked, with the reason.
type blockedRange struct {
	prefix netip.Prefix
	reason string
}

// metadataV4 is the address of the metadata service of most clouds, which hands
// out credentials.
func metadataV4() netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 169, 254}) }

// specialRanges returns the special-purpose ranges of the IANA registries (RFC 6890) and
// the metadata addresses of the clouds, some of which are public addresses. A
// range comes before every range that contains it.
func specialRanges() []blockedRange {
	table := []struct{ prefix, reason string }{
		{"169.254.169.254/32", reasonMetadata}, // AWS, Azure, GCP and others
		{"169.254.170.2/32", reasonMetadata},   // ECS task credentials
		{"169.254.170.23/32", reasonMetadata},  // EKS pod identity
		{"100.100.100.200/32", reasonMetadata}, // Alibaba
		{"192.0.0.192/32", reasonMetadata},     // Oracle
		{"168.63.129.16/32", reasonMetadata},   // Azure wire server
		{"fd00:ec2::254/128", reasonMetadata},  // AWS
		{"fd00:ec2::23/128", reasonMetadata},   // EKS pod identity
		{"fd20:ce::254/128", reasonMetadata},   // GCP

		{"0.0.0.0/8", "this_network"},
		{"10.0.0.0/8", reasonPrivate},
		{"100.64.0.0/10", reasonCGNAT},
		{"127.0.0.0/8", reasonLoopback},
		{"169.254.0.0/16", reasonLinkLocal},
		{"172.16.0.0/12", reasonPrivate},
		{"192.0.0.0/24", "ietf_protocol"},
		{"192.0.2.0/24", "documentation"},
		{"192.88.99.0/24", "deprecated_relay"},
		{"192.168.0.0/16", reasonPrivate},
		{"198.18.0.0/15", "benchmark"},
		{"198.51.100.0/24", "documentation"},
		{"203.0.113.0/24", "documentation"},
		{"224.0.0.0/4", reasonMulticast},
		{"240.0.0.0/4", "reserved"},

		{"::1/128", reasonLoopback},
		{"::/96", "ipv4_compatible"},
		{"::ffff:0:0:0/96", "ipv4_translated"},
		{"64:ff9b::/96", "nat64"},
		{"64:ff9b:1::/48", "nat64_local"},
		{"100::/64", "discard"},
		{"100:0:0:1::/64", "discard"},
		{"2001::/32", "teredo"},
		{"2001:db8::/32", "documentation"},
		{"2001::/23", "ietf_protocol"},
		{"2002::/16", "sixtofour"},
		{"3fff::/20", "documentation"},
		{"fc00::/7", reasonULA},
		{"fe80::/10", reasonLinkLocal},
		{"fec0::/10", "site_local"},
		{"ff00::/8", reasonMulticast},
	}
	out := make([]blockedRange, len(table))
	for i, row := range table {
		out[i] = blockedRange{netip.MustParsePrefix(row.prefix), row.reason}
	}
	return out
}

// classify returns why addr is blocked, or "" for an ordinary public address.
// The caller unmaps an IPv4-mapped address first.
func classify(table []blockedRange, addr netip.Addr) string {
	for _, b := range table {
		if b.prefix.Contains(addr) {
			return b.reason
		}
	}
	switch {
	case addr.Is4():
		return ""
	case isISATAP(addr):
		return "isatap"
	case addr.As16()[0]>>5 != 1: // outside 2000::/3, the only global unicast range that IANA assigns from
		return "not_global_unicast"
	}
	return ""
}

// isISATAP reports whether addr's interface identifier carries an IPv4 address
// in the form of RFC 5214, section 6.1.
func isISATAP(addr netip.Addr) bool {
	b := addr.As16()
	return (b[8] == 0 || b[8] == 2) && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// embedded returns the IPv4 addresses that an IPv6 transition address can carry.
// The local NAT64 prefix does not say which bytes it uses, so it returns several.
func embedded(addr netip.Addr) []netip.Addr {
	if addr.Is4() {
		return []netip.Addr{addr}
	}
	b := addr.As16()
	last := netip.AddrFrom4([4]byte(b[12:16]))
	switch {
	case b[0] == 0x20 && b[1] == 0x02: // 6to4
		return []netip.Addr{netip.AddrFrom4([4]byte(b[2:6]))}
	case b[0] == 0x20 && b[1] == 0x01 && b[2] == 0 && b[3] == 0: // Teredo, inverted
		return []netip.Addr{netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]})}
	case [6]byte(b[:6]) == [6]byte{0, 0x64, 0xff, 0x9b, 0, 1}: // local NAT64; RFC 6052 leaves out byte 8
		return []netip.Addr{
			netip.AddrFrom4([4]byte{b[6], b[7], b[9], b[10]}),
			netip.AddrFrom4([4]byte{b[7], b[9], b[10], b[11]}),
			netip.AddrFrom4([4]byte(b[9:13])), last,
		}
	case [4]byte(b[:4]) == [4]byte{0, 0x64, 0xff, 0x9b}, // NAT64
		[8]byte(b[:8]) == [8]byte{}, // compatible, translated
		isISATAP(addr):
		return []netip.Addr{last}
	}
	return nil
}
