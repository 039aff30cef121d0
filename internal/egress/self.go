package egress

import (
	"net"
	"net/netip"
	"slices"
)

// leadsTo reports whether a connection to addr reaches a listener on own. The
// host's addresses are read each time, because they change while it runs; few
// targets have the port of a listener.
func leadsTo(addr, own netip.Addr) bool {
	switch {
	case addr == own:
		return true
	case addr.IsUnspecified(): // connect(2) reads it as this host
		return true
	case own.IsUnspecified(): // all of 127.0.0.0/8 is this host, whatever the interfaces say
		return addr.IsLoopback() || slices.Contains(hostAddresses(), addr)
	}
	return false
}

// hostAddresses returns the addresses of this host's interfaces; none when they
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
