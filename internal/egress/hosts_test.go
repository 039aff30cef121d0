package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// emptyResolver is a resolver that knows no name.
type emptyResolver struct{}

func (emptyResolver) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

// Localhost needs no resolver: it is reached with and without cgo, and even if
// the hosts file lacks it. The dial and the check agree.
func TestLocalhostIsReachedWhereItIsAllowed(t *testing.T) { // K03
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer srv.Close()
	own := netip.MustParseAddrPort(srv.Listener.Addr().String())
	for what, resolver := range map[string]Resolver{
		"the host's own":            nil,
		"pure Go":                   hostResolver{hostsFile(), &net.Resolver{PreferGo: true}},
		"the operating system's":    hostResolver{hostsFile(), &net.Resolver{}},
		"an empty one":              emptyResolver{},
		"one with other addresses":  &fakeResolver{answers: map[string][][]string{"localhost.": oneAnswer("8.8.8.8"), "mcp.localhost.": oneAnswer("10.0.0.1")}},
		"one without a hosts file":  hostResolver{filepath.Join(t.TempDir(), "none"), emptyResolver{}},
		"a hosts file that differs": hostResolver{hostsWith(t, "10.0.0.1 localhost mcp.localhost"), emptyResolver{}},
	} {
		for _, name := range []string{"localhost", "LOCALHOST.", "mcp.localhost"} {
			for _, c := range []struct {
				allow []netip.Prefix
				own   bool
				want  string
			}{
				{prefixes("127.0.0.0/8"), false, ""},
				{prefixes("127.0.0.0/8", "::1/128"), false, ""},
				{prefixes("10.0.0.0/8"), false, "internal_name"},
				{nil, false, "internal_name"},
				{prefixes("127.0.0.0/8"), true, "self"},
				{prefixes("127.0.0.0/8", "::1/128"), true, "self"},
			} {
				p := DefaultPolicy()
				p.Allowlist = c.allow
				o := Options{Resolver: resolver}
				if c.own {
					o.Listen = []netip.AddrPort{own}
				}
				e := New(p, o)
				url := strings.Replace(srv.URL, "127.0.0.1", name, 1)
				dialled := get(t, e, url)
				_, judged := e.Resolve(t.Context(), url)
				for does, err := range map[string]error{"dialling": dialled, "checking": judged} {
					if reasonOf(err) != c.want || (c.want == "") != (err == nil) {
						t.Errorf("%s, %s %s with %v allowed: %v, want reason %q", what, does, name, c.allow, err, c.want)
					}
				}
			}
		}
	}
}

func TestLocalhostIsReachedIfLoopbackIsNotBlocked(t *testing.T) { // K02
	p := DefaultPolicy()
	p.BlockLoopback = false
	addrs, err := New(p, Options{Resolver: emptyResolver{}}).Resolve(t.Context(), "http://localhost:3001/mcp")
	if err != nil || fmt.Sprint(addrs) != "[127.0.0.1 ::1]" {
		t.Errorf("%v, %v", addrs, err)
	}
	p.ExtraBlocked = prefixes("127.0.0.0/8", "::1/128")
	if _, err := New(p, Options{Resolver: emptyResolver{}}).Resolve(t.Context(), "http://localhost:3001/mcp"); reasonOf(err) != "internal_name" {
		t.Errorf("%v", err)
	}
}

func hostsWith(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheHostsFileIsReadBeforeTheResolverIsAsked(t *testing.T) { // K03
	file := hostsWith(t,
		"# 10.9.9.9 tools.corp", "", "10.1.2.3\ttools.corp  Alias.Corp # 10.9.9.9 tools.corp", "10.1.2.4 tools.corp.", "not-an-address broken.corp",
		"10.1.9.9 "+strings.Repeat("filler ", 5000), "fd12::1 six.corp", "8.8.8.8 public.example.com", "10.0.0.5 inside.example.com", "10.1.2.5 last.corp")
	for _, c := range []struct{ host, want string }{
		{"tools.corp", "[10.1.2.3 10.1.2.4]"},
		{"TOOLS.corp.", "[10.1.2.3 10.1.2.4]"},
		{"alias.corp", "[10.1.2.3]"},
		{"last.corp", "[10.1.2.5]"},
		{"public.example.com", "[8.8.8.8]"},
		{"inside.example.com", "private"},
		{"six.corp", "internal_name"}, // outside the allow-list
		{"broken.corp", "internal_name"},
		{"corp", "internal_name"},
		{"asked.example.com", "[8.8.4.4]"},
	} {
		p := DefaultPolicy()
		p.Allowlist = prefixes("10.1.0.0/16")
		e := New(p, Options{Resolver: hostResolver{file, &fakeResolver{answers: map[string][][]string{
			"asked.example.com.": oneAnswer("8.8.4.4"), "tools.corp.": oneAnswer("10.2.0.1"), "public.example.com.": oneAnswer("10.0.0.1"),
		}}}})
		addrs, err := e.resolveHost(t.Context(), c.host)
		got := reasonOf(err)
		if err == nil {
			got = fmt.Sprint(addrs)
		}
		if got != c.want {
			t.Errorf("%s: %s (%v), want %s", c.host, got, err, c.want)
		}
	}
	var missing *net.DNSError
	if _, err := (hostResolver{file, emptyResolver{}}).LookupNetIP(t.Context(), "ip", "nobody.corp."); !errors.As(err, &missing) {
		t.Errorf("%v", err)
	}
}
