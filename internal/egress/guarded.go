package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// GuardedOptions configure one guarded client. The zero value has no overall
// timeout; the request's context still ends the request.
type GuardedOptions struct {
	// Timeout covers a whole request, including reading the body. 0 means none.
	Timeout time.Duration
}

// Guarded returns a client for targets that orgs, users, models or remote
// servers can name. It connects only to addresses that the policy allows. It
// follows no redirect, uses no proxy, requests no compression and reads at most
// 64 KiB of response header. A refused target is a [*BlockedError]. All guarded
// clients of an Egress share their idle connections.
func (e *Egress) Guarded(o GuardedOptions) *http.Client {
	return &http.Client{
		Transport:     guardedTransport{e},
		CheckRedirect: e.refuseRedirect,
		Timeout:       o.Timeout,
	}
}

// guardedTransport refuses a malformed request before a connection is looked for.
type guardedTransport struct{ egress *Egress }

// RoundTrip implements [http.RoundTripper].
func (g guardedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := checkRequest(r); err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // a RoundTripper must close the body, also on error
		}
		return nil, err
	}
	return g.egress.withAnnotations(g.egress.guarded.Load()).RoundTrip(r)
}

// CloseIdleConnections implements [http.Client.CloseIdleConnections].
func (g guardedTransport) CloseIdleConnections() { g.egress.guarded.Load().CloseIdleConnections() }

func checkRequest(r *http.Request) error {
	if _, err := ParseTarget(r.URL.String()); err != nil {
		return err
	}
	if r.Host != "" && r.Host != r.URL.Host {
		return fmt.Errorf("host header %q differs from the URL's host", r.Host)
	}
	return nil
}

// refuseRedirect refuses every redirect. A redirect to a blocked address or to
// another scheme is a [*BlockedError]. Any other is a plain error: the operator
// must configure the server's new URL.
func (e *Egress) refuseRedirect(r *http.Request, _ []*http.Request) error {
	host := hostOf(r)
	if r.URL.Scheme != "http" && r.URL.Scheme != "https" {
		return &BlockedError{Reason: "redirect", Host: host}
	}
	_, err := e.resolveHost(r.Context(), host)
	var blocked *BlockedError
	if errors.As(err, &blocked) {
		return &BlockedError{Reason: "redirect", Addr: blocked.Addr, Host: host}
	}
	return fmt.Errorf("redirect to %s not followed; if that URL is right, configure it", withoutSecrets(r.URL))
}

// withoutSecrets returns the URL without credentials, query and fragment, at most maxShown bytes
// of it.
func withoutSecrets(u *url.URL) string {
	const maxShown = 256
	shown := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	if len(shown) > maxShown {
		shown = strings.ToValidUTF8(shown[:maxShown], "") + "…"
	}
	return shown
}

// hostOf returns the host of a request's URL, with brackets and without port.
func hostOf(r *http.Request) string {
	host := strings.TrimSuffix(r.URL.Host, r.URL.Port())
	return strings.TrimSuffix(host, ":")
}

// dialFunc is the type of [http.Transport.DialContext].
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

func newGuarded(dial dialFunc) *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // a proxy would connect to addresses that are not checked
		DialContext:            dial,
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxIdleConns:           512,
		MaxIdleConnsPerHost:    256,
		IdleConnTimeout:        idleTimeout,
		DisableCompression:     true, // a small body cannot expand to a large one
		MaxResponseHeaderBytes: maxResponseHeader,
		ForceAttemptHTTP2:      true,
	}
}

// DialGuarded connects to an address, host:port, that an org, a user, a model or a remote server can name, for
// protocols other than HTTP. The policy applies as it does to [Egress.Guarded]: a refused address is a [*BlockedError].
func (e *Egress) DialGuarded(ctx context.Context, network, address string) (net.Conn, error) {
	if network != "tcp" {
		return nil, fmt.Errorf("dial: network %q; only tcp is allowed", network)
	}
	return e.dial(ctx, network, address)
}
