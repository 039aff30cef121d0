package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

// GuardedOptions shape one guarded client. The zero value has no overall
// timeout: the caller's context ends a request.
type GuardedOptions struct {
	// Timeout bounds a whole request, the reading of its body included; 0 = none.
	Timeout time.Duration
}

// Guarded returns a client for targets that orgs, users, models or remote
// servers can name. It reaches only what the policy permits, follows no
// redirect, uses no proxy, asks for no compression and reads at most 64 KiB of
// answer header. A refusal is a [*BlockedError]. All guarded clients of an
// Egress share their kept connections.
func (e *Egress) Guarded(o GuardedOptions) *http.Client {
	return &http.Client{
		Transport:     guard{e.annotate(e.guarded)},
		CheckRedirect: e.refuseRedirect,
		Timeout:       o.Timeout,
	}
}

// guard judges the shape of a request before a connection is looked for.
type guard struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := checkRequest(r); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper closes the body also when it refuses
		}
		return nil, err
	}
	return g.next.RoundTrip(r)
}

// CloseIdleConnections lets [http.Client.CloseIdleConnections] through.
func (g guard) CloseIdleConnections() {
	if c, ok := g.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func checkRequest(r *http.Request) error {
	if _, err := ParseTarget(r.URL.String()); err != nil {
		return err
	}
	if r.Host != "" && r.Host != r.URL.Host {
		return fmt.Errorf("host header %q differs from the URL's host", r.Host)
	}
	return nil
}

// refuseRedirect ends every redirect. One that points to a forbidden address, or
// away from HTTP, is an attack and says so; another is a server to be configured
// by its new URL.
func (e *Egress) refuseRedirect(r *http.Request, _ []*http.Request) error {
	host := hostOf(r)
	if r.URL.Scheme != "http" && r.URL.Scheme != "https" {
		return &BlockedError{Reason: "redirect", Host: host}
	}
	_, err := e.addresses(r.Context(), host)
	var blocked *BlockedError
	if errors.As(err, &blocked) {
		return &BlockedError{Reason: "redirect", Addr: blocked.Addr, Host: host}
	}
	return fmt.Errorf("redirect to %s not followed", host)
}

// hostOf returns the host of a request's URL with its brackets, without port.
func hostOf(r *http.Request) string {
	host := strings.TrimSuffix(r.URL.Host, r.URL.Port())
	return strings.TrimSuffix(host, ":")
}

// dialFunc is the type of [http.Transport.DialContext].
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func newGuarded(dial dialFunc) *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // the environment's proxy would connect where we may not
		DialContext:            dial,
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxIdleConns:           512,
		MaxIdleConnsPerHost:    32,
		IdleConnTimeout:        idleTimeout,
		DisableCompression:     true, // a small answer stays small
		MaxResponseHeaderBytes: headerLimit,
		ForceAttemptHTTP2:      true,
	}
}
