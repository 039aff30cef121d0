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

// hostsFile returns the path of the operating system's hosts file.
func hostsFile() string {
	if runtime.GOOS == "windows" {
		return `C:\Windows\System32\drivers\etc\hosts`
	}
	return "/etc/hosts"
}

// hostResolver looks in the hosts file first and then asks the operating system's
// resolver. It reads the file itself, because neither the C library nor package
// net finds absolute names (with a final dot) in it.
type hostResolver struct {
	file string
	next Resolver
}

func newHostResolver() hostResolver { return hostResolver{hostsFile(), net.DefaultResolver} }

// LookupNetIP implements [Resolver].
func (h hostResolver) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	if addrs := h.lookUpFile(strings.TrimSuffix(host, ".")); len(addrs) > 0 {
		return addrs, nil
	}
	return h.next.LookupNetIP(ctx, network, host)
}

// lookUpFile returns the addresses that the hosts file has for a name, at most
// maxAddresses+1. It returns nil if the file cannot be read.
func (h hostResolver) lookUpFile(name string) (addrs []netip.Addr) {
	f, err := os.Open(h.file)
	if err != nil {
		return nil
	}
	defer f.Close()
	for r := bufio.NewReader(f); len(addrs) <= maxAddresses; {
		line, err := r.ReadSlice('\n')
		if addr, ok := parseHostsLine(string(line), name); ok {
			addrs = append(addrs, addr)
		}
		for errors.Is(err, bufio.ErrBufferFull) { // fakeResolver after the first 4 KiB of a line are ignored
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

// parseHostsLine returns the address of a line of the hosts file that contains name.
func parseHostsLine(line, name string) (netip.Addr, bool) {
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
