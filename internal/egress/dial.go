package egress

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Time limits for opening a connection.
const (
	dialTimeout      = 10 * time.Second // for all addresses of a host together
	minDialShare     = 2 * time.Second  // the least that one address gets
	lookupTimeout    = dialTimeout - minDialShare
	handshakeTimeout = 10 * time.Second
	keepAlive        = 30 * time.Second
	idleTimeout      = 90 * time.Second
)

// dial resolves address, which is host:port in the form that net/http passes,
// and connects to the first of its checked addresses that accepts.
func (e *Egress) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
		host = "[" + host + "]" // SplitHostPort removed the brackets
	}
	name, addr, reason := parseHost(host)
	if reason != "" {
		return nil, &BlockedError{Reason: reason, Host: host}
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("dial: port: %w", err)
	}
	addrs, err := e.resolveForDial(ctx, name, addr, uint16(number))
	if err != nil {
		return nil, err
	}
	return e.dialFirst(ctx, network, addrs, port)
}

// dialFirst tries addrs in order and divides the remaining time among them.
func (e *Egress) dialFirst(ctx context.Context, network string, addrs []netip.Addr, port string) (net.Conn, error) {
	var last error
	for i, addr := range addrs {
		conn, err := e.dialOne(ctx, network, net.JoinHostPort(addr.String(), port), len(addrs)-i)
		if err == nil {
			return conn, nil
		}
		last = err
		if ctx.Err() != nil {
			break
		}
	}
	return nil, last
}

func (e *Egress) dialOne(ctx context.Context, network, address string, left int) (net.Conn, error) {
	share := dialTimeout
	if deadline, ok := ctx.Deadline(); ok {
		share = max(time.Until(deadline)/time.Duration(left), minDialShare)
	}
	d := net.Dialer{Timeout: share, KeepAlive: keepAlive, Control: e.control}
	return d.DialContext(ctx, network, address)
}

// control checks the address again at connect(2), the last moment before a
// connection is opened.
func (e *Egress) control(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", address, err)
	}
	return e.checkConnect("", target)
}

// checkConnect checks one address and port: the policy must allow the address,
// and it must not lead to a listener of this process.
func (e *Egress) checkConnect(name string, target netip.AddrPort) error {
	if err := e.checkAddress(name, target.Addr()); err != nil {
		return err
	}
	if e.listen.contain(target) {
		return &BlockedError{Reason: "self", Addr: target.Addr().Unmap().WithZone(""), Host: name}
	}
	return nil
}

// listeners are the addresses that this process serves on.
type listeners []netip.AddrPort

// contain reports whether a connection to target would reach this process.
func (l listeners) contain(target netip.AddrPort) bool {
	addr := target.Addr().Unmap().WithZone("")
	return slices.ContainsFunc(l, func(own netip.AddrPort) bool {
		return own.Port() == target.Port() && reachesListener(addr, own.Addr().Unmap())
	})
}
