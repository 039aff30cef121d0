package egress

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
)

// hostsFile is where the operating system keeps addresses of names.
func hostsFile() string {
	if runtime.GOOS == "windows" {
		return `C:\Windows\System32\drivers\etc\hosts`
	}
	return "/etc/hosts"
}

// hostResolver is the host's own resolver: the hosts file first, then what the
// operating system is set up to ask. The file is read here, because neither the
// C library nor package net finds the absolute names in it that we look up.
type hostResolver struct {
	file string
	next Resolver
}

func newHostResolver() hostResolver { return hostResolver{hostsFile(), net.DefaultResolver} }

// LookupNetIP implements [Resolver].
func (h hostResolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if addrs := h.listed(strings.TrimSuffix(host, ".")); len(addrs) > 0 {
		return addrs, nil
	}
	return h.next.LookupNetIP(ctx, network, host)
}

// listed returns the addresses that the hosts file has for a name, at most one
// more than a name may have. A file that cannot be read has none.
func (h hostResolver) listed(name string) (addrs []netip.Addr) {
	f, err := os.Open(h.file)
	if err != nil {
		return nil
	}
	defer f.Close()
	for r := bufio.NewReader(f); len(addrs) <= maxAddresses; {
		line, err := r.ReadSlice('\n')
		if addr, ok := namesHost(string(line), name); ok {
			addrs = append(addrs, addr)
		}
		for errors.Is(err, bufio.ErrBufferFull) { // the names that stand beyond 4 KiB are not read
			_, err = r.ReadSlice('\n')
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				return nil
			}
			break
		}
	}
	return addrs
}

// namesHost returns the address of a line that has the name.
func namesHost(line, name string) (netip.Addr, bool) {
	line, _, _ = strings.Cut(line, "#")
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return netip.Addr{}, false
	}
	for _, f := range fields[1:] {
		if strings.EqualFold(strings.TrimSuffix(f, "."), name) {
			addr, err := netip.ParseAddr(fields[0])
			return addr, err == nil
		}
	}
	return netip.Addr{}, false
}
