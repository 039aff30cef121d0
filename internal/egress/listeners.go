package egress

import (
	"net"
	"net/netip"
	"slices"
)

// reachesListener reports whether a connection to addr reaches a listener on own. It
// reads the host's addresses on every call, because they can change. That is
// rare: the caller compares the ports first.
func reachesListener(addr, own netip.Addr) bool {
	switch {
	case addr == own:
		return true
	case addr.IsUnspecified(): // connect(2) treats it as this host
		return true
	case own.IsUnspecified(): // all of 127.0.0.0/8 is this host, even if no interface lists it
		return addr.IsLoopback() || slices.Contains(hostAddresses(), addr)
	}
	return false
}

// hostAddresses returns the addresses of this host's interfaces, or nil if they
// cannot be read.
func hostAddresses() []netip.Addr {
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var addrs []netip.Addr
	for _, a := range interfaces {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				addrs = append(addrs, addr.Unmap())
			}
		}
	}
	return addrs
}
