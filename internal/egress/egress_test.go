package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeResolver is a resolver that answers from a table. Each lookup of a name takes its
// next answer; the last answer repeats.
type fakeResolver struct {
	mu      sync.Mutex
	answers map[string][][]string
	lookups []string
}

func (n *fakeResolver) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lookups = append(n.lookups, host)
	rows, ok := n.answers[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(rows) > 1 {
		n.answers[host] = rows[1:]
	}
	var out []netip.Addr
	for _, a := range rows[0] {
		out = append(out, netip.MustParseAddr(a))
	}
	return out, nil
}

func oneAnswer(addrs ...string) [][]string { return [][]string{addrs} }

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		out = append(out, netip.MustParsePrefix(p))
	}
	return out
}

// get sends a GET through a guarded client and returns the error.
func get(t *testing.T, e *Egress, url string) error {
	t.Helper()
	defer e.CloseIdleConnections()
	resp, err := e.Guarded(GuardedOptions{}).Get(url)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

func reasonOf(err error) string {
	var b *BlockedError
	if errors.As(err, &b) {
		return b.Reason
	}
	return ""
}

func TestNamesAreResolvedOnceAndEveryAnswerMustPass(t *testing.T) { // K01, P06
	many := make([]string, maxAddresses+1)
	for i := range many {
		many[i] = "8.8.8.8"
	}
	cases := []struct {
		name, host string
		answers    [][]string
		want       string
	}{
		{"public", "a.example.com", oneAnswer("8.8.8.8", "2606:4700:4700::1111"), ""},
		{"private", "a.example.com", oneAnswer("10.0.0.1"), "private"},
		{"public and private mixed", "a.example.com", oneAnswer("8.8.8.8", "192.168.1.1"), "private"},
		{"mapped loopback", "a.example.com", oneAnswer("::ffff:127.0.0.1"), "loopback"}, // K05
		{"NAT64 of the metadata address", "a.example.com", oneAnswer("64:ff9b::a9fe:a9fe"), "nat64"},
		{"private IPv6 only", "a.example.com", oneAnswer("fd12::1"), "ula"},
		{"no answer", "a.example.com", oneAnswer(), "no_address"},
		{"a flood of answers", "a.example.com", oneAnswer(many...), "too_many_addresses"},
		{"a public name for loopback", "127.0.0.1.nip.io", oneAnswer("127.0.0.1"), "loopback"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dns := &fakeResolver{answers: map[string][][]string{c.host + ".": c.answers}}
			e := New(DefaultPolicy(), Options{Resolver: dns})
			_, err := e.resolveHost(t.Context(), c.host)
			if got := reasonOf(err); got != c.want || (c.want == "") != (err == nil) {
				t.Errorf("reason %q (%v), want %q", got, err, c.want)
			}
			if len(dns.lookups) != 1 {
				t.Errorf("lookups %v, want exactly one", dns.lookups)
			}
		})
	}
}

func TestDNSRebindingIsBlocked(t *testing.T) { // K01
	dns := &fakeResolver{answers: map[string][][]string{"flip.example.com.": {{"8.8.8.8"}, {"127.0.0.1"}}}}
	e := New(DefaultPolicy(), Options{Resolver: dns})
	if _, err := e.resolveHost(t.Context(), "flip.example.com"); err != nil {
		t.Fatal(err)
	}
	if _, err := e.resolveHost(t.Context(), "flip.example.com"); reasonOf(err) != "loopback" {
		t.Errorf("second lookup: %v, want loopback", err)
	}
	// The connection is checked again, independently of the lookup.
	if err := e.control("tcp4", "10.0.0.1:80", nil); reasonOf(err) != "private" {
		t.Errorf("control: %v, want private", err)
	}
}

func TestAGuardedClientNeverConnectsToABlockedAddress(t *testing.T) { // P06
	hits := make(chan string, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hits <- r.URL.Path }))
	defer srv.Close()
	port := srv.Listener.Addr().(*net.TCPAddr).AddrPort().Port()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, srv.URL) // must be ignored
	}

	dns := &fakeResolver{answers: map[string][][]string{"evil.example.com.": oneAnswer("127.0.0.1")}}
	e := New(DefaultPolicy(), Options{Resolver: dns})
	for _, host := range []string{"127.0.0.1", "evil.example.com", "[::ffff:127.0.0.1]"} {
		err := get(t, e, fmt.Sprintf("http://%s:%d/secret", host, port))
		var fatal tool.Blocked
		if !errors.As(err, &fatal) {
			t.Fatalf("%s: %v, want a refusal", host, err)
		}
		if reason, address := fatal.Blocked(); reason != "loopback" || address != "127.0.0.1" {
			t.Errorf("%s: %s %s", host, reason, address)
		}
		if want := "ssrf_blocked:loopback:127.0.0.1"; !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q lacks %q", host, err, want)
		}
	}
	if len(hits) != 0 {
		t.Errorf("%d connections were made", len(hits))
	}
}

func TestTheAllowListOverridesAddressesAndNames(t *testing.T) { // K03
	dns := func() *fakeResolver {
		return &fakeResolver{answers: map[string][][]string{
			"tools.svc.cluster.local.": oneAnswer("10.1.2.3"),
			"other.svc.cluster.local.": oneAnswer("10.2.0.1"),
			"mixed.svc.cluster.local.": oneAnswer("10.1.2.3", "8.8.8.8"),
			"localhost.":               oneAnswer("10.1.2.3"), // not asked
			"redis.":                   oneAnswer("10.1.0.9"),
		}}
	}
	cases := []struct {
		name  string
		allow []netip.Prefix
		host  string
		want  string
	}{
		{"a cluster name inside the range", prefixes("10.1.0.0/16"), "tools.svc.cluster.local", ""},
		{"a cluster name outside the range", prefixes("10.1.0.0/16"), "other.svc.cluster.local", "internal_name"},
		{"a cluster name half inside", prefixes("10.1.0.0/16"), "mixed.svc.cluster.local", "internal_name"},
		{"a cluster name that does not exist looks the same", prefixes("10.1.0.0/16"), "nosuch.svc.cluster.local", "internal_name"},
		{"a single label", prefixes("10.1.0.0/16"), "redis", ""},
		{"localhost", prefixes("127.0.0.0/8", "::1/128"), "localhost", ""},
		{"localhost, IPv6 not listed", prefixes("127.0.0.0/8"), "localhost", ""},
		{"localhost, IPv4 not listed", prefixes("::1/128"), "a.localhost", ""},
		{"localhost, neither listed", prefixes("127.0.0.2/32", "10.0.0.0/8"), "localhost", "internal_name"},
		{"nothing listed", nil, "localhost", "internal_name"},
		{"a literal", prefixes("127.0.0.0/8"), "127.0.0.1", ""},
		{"a mapped prefix", prefixes("::ffff:10.0.0.0/104"), "10.3.4.5", ""},
		{"metadata in a wide range", prefixes("169.254.0.0/16", "0.0.0.0/0"), "169.254.169.254", "metadata"},
		{"metadata on its own", prefixes("169.254.169.254/32"), "169.254.169.254", ""},
		{"metadata mapped, on its own", prefixes("169.254.169.254/32"), "[::ffff:a9fe:a9fe]", ""},
		{"metadata behind NAT64", prefixes("64:ff9b::/96"), "[64:ff9b::a9fe:a9fe]", "nat64"},
		{"metadata behind local NAT64, after 48 bits", prefixes("64:ff9b:1::/48"), "[64:ff9b:1:a9fe:a9:fe00::]", "nat64_local"},
		{"metadata behind local NAT64, after 96 bits", prefixes("64:ff9b:1::/48"), "[64:ff9b:1::a9fe:a9fe]", "nat64_local"},
		{"another address behind local NAT64", prefixes("64:ff9b:1::/48"), "[64:ff9b:1::a00:1]", ""},
		{"metadata behind 6to4", prefixes("2002::/16"), "[2002:a9fe:a9fe::1]", "sixtofour"},
		{"another metadata address in a range", prefixes("100.100.0.0/16"), "100.100.100.200", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := DefaultPolicy()
			p.Allowlist = c.allow
			e := New(p, Options{Resolver: dns()})
			_, err := e.resolveHost(t.Context(), c.host)
			if got := reasonOf(err); got != c.want || (c.want == "") != (err == nil) {
				t.Errorf("reason %q (%v), want %q", got, err, c.want)
			}
		})
	}
}

func TestInternalNamesAreRefusedWithoutALookup(t *testing.T) { // P06: no DNS oracle
	dns := &fakeResolver{}
	e := New(DefaultPolicy(), Options{Resolver: dns})
	for _, host := range []string{"localhost", "vault.corp", "db.cluster.local", "redis"} {
		if _, err := e.resolveHost(t.Context(), host); reasonOf(err) == "" {
			t.Errorf("%s: %v, want a refusal", host, err)
		}
	}
	if len(dns.lookups) != 0 {
		t.Errorf("lookups %v, want none", dns.lookups)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) { // K05
	cases := []struct {
		name, location string
		want           string
	}{
		{"to loopback", "http://127.0.0.9/", "redirect"},
		{"to the metadata service", "http://169.254.169.254/latest", "redirect"},
		{"to an odd spelling", "http://2130706433/", "redirect"},
		{"to an internal name", "http://vault.internal/", "redirect"},
		{"to a name that resolves inside", "http://inside.example.com/", "redirect"},
		{"to a public name", "https://example.com/mcp", ""},
		{"to a file", "file:///etc/passwd", "redirect"},
		{"to the same server", "/again", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var hits int
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				hits++
				http.Redirect(w, r, c.location, http.StatusFound)
			}))
			defer srv.Close()
			p := DefaultPolicy()
			p.Allowlist = prefixes("127.0.0.1/32")
			e := New(p, Options{Resolver: &fakeResolver{answers: map[string][][]string{
				"inside.example.com.": oneAnswer("10.0.0.1"), "example.com.": oneAnswer("8.8.8.8"),
			}}})
			err := get(t, e, srv.URL)
			if err == nil || reasonOf(err) != c.want {
				t.Errorf("%v, want reason %q", err, c.want)
			}
			if hits != 1 {
				t.Errorf("%d requests, want 1", hits)
			}
		})
	}
}

func TestAGuardedClientNeverConnectsToAListenerOfThisProcess(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer srv.Close()
	own := srv.Listener.Addr().(*net.TCPAddr).AddrPort()
	p := DefaultPolicy()
	p.Allowlist = prefixes("127.0.0.0/8")
	for name, listen := range map[string]netip.AddrPort{
		"as it listens":      own,
		"on every interface": netip.AddrPortFrom(netip.IPv4Unspecified(), own.Port()),
		"mapped":             netip.AddrPortFrom(netip.MustParseAddr("::ffff:127.0.0.1"), own.Port()),
	} {
		t.Run(name, func(t *testing.T) {
			e := New(p, Options{Listen: []netip.AddrPort{listen}})
			if err := get(t, e, srv.URL); reasonOf(err) != "self" {
				t.Errorf("%v, want self", err)
			}
		})
	}
}

func TestAForeignHostHeaderIsRefused(t *testing.T) {
	e := New(DefaultPolicy(), Options{Resolver: &fakeResolver{}})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://example.com/", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "metadata.google.internal"
	if _, err = e.Guarded(GuardedOptions{}).Do(r); err == nil || !strings.Contains(err.Error(), "host header") {
		t.Errorf("%v, want a refusal of the host header", err)
	}
}

func TestAResponseHeaderIsLimited(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Big", strings.Repeat("x", maxResponseHeader+1))
	}))
	defer srv.Close()
	p := DefaultPolicy()
	p.Allowlist = prefixes("127.0.0.0/8")
	if err := get(t, New(p, Options{}), srv.URL); err == nil {
		t.Error("a header beyond the cap was accepted")
	}
}

func TestTheOperatorTransportReachesPrivateAddressesWithoutProxies(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			t.Error("compression was asked for")
		}
	}))
	defer srv.Close()
	e := New(DefaultPolicy(), Options{})
	defer e.CloseIdleConnections()
	if first := e.Operator(); first.Proxy != nil || first != e.Operator() {
		t.Error("the operator's transport has a proxy, or is not one")
	}
	resp, err := (&http.Client{Transport: e.Operator()}).Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

func TestACancelledDialReturns(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := New(DefaultPolicy(), Options{Resolver: &fakeResolver{answers: map[string][][]string{"a.example.com.": oneAnswer("8.8.8.8", "8.8.4.4")}}})
	if _, err := e.dial(ctx, "tcp", "a.example.com:443"); err == nil {
		t.Error("a cancelled dial succeeded")
	}
}
