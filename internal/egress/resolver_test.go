package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A name whose answer alternates between an allowed and a blocked address, a
// thousand times with no time to live: no connection goes to the blocked one.
func TestARebindingNameNeverReachesABlockedAddress(t *testing.T) { // K01, P06
	const times = 1000
	outside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := outside.Addr().(*net.TCPAddr).Port
	inside, err := net.Listen("tcp", fmt.Sprintf("127.0.0.2:%d", port))
	if err != nil {
		_ = outside.Close()
		t.Skipf("this machine has one loopback address: %v", err)
	}
	var reached atomic.Int64
	served := make(chan error, 1)
	srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: testTimeout}
	go func() { served <- srv.Serve(outside) }()
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		for {
			conn, err := inside.Accept()
			if err != nil {
				return
			}
			reached.Add(1)
			_ = conn.Close()
		}
	}()
	var answers [][]string
	for i := range times {
		answers = append(answers, oneAnswer("127.0.0.1", "127.0.0.2")[0][i%2:i%2+1])
	}
	e := newLoopbackEgress(t)
	e.resolver.(*fakeResolver).answers["flap.example.com."] = answers
	for i := range times {
		want := []string{"", "loopback"}[i%2]
		if err := get(t, e, fmt.Sprintf("http://flap.example.com:%d/", port)); reasonOf(err) != want || want == "" && err != nil {
			t.Fatalf("request %d: %v, want reason %q", i, err, want)
		}
	}
	_, _ = srv.Close(), inside.Close()
	<-accepted
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if reached.Load() != 0 {
		t.Errorf("%d connections to the blocked address", reached.Load())
	}
}

// slowResolver is a resolver that answers after a delay, or when its context ends.
type slowResolver time.Duration

func (s slowResolver) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	select {
	case <-time.After(time.Duration(s)):
		return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
	case <-ctx.Done():
		return nil, &net.DNSError{Err: ctx.Err().Error(), Name: host, IsTimeout: true}
	}
}

func TestASlowLookupEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(DefaultPolicy(), Options{Resolver: slowResolver(time.Hour)})
		begin := time.Now()
		_, err := e.dial(t.Context(), "tcp", "a.example.com:443")
		if took := time.Since(begin); err == nil || reasonOf(err) != "" || took > dialTimeout {
			t.Errorf("%v after %v", err, took)
		}
		begin = time.Now()
		r := &http.Request{URL: mustParse(t, "http://b.example.com/")}
		if err := e.refuseRedirect(r, nil); err == nil || reasonOf(err) != "" || time.Since(begin) > dialTimeout {
			t.Errorf("redirect: %v after %v", err, time.Since(begin))
		}
	})
	synctest.Test(t, func(t *testing.T) { // a late answer is checked like any other
		e := New(DefaultPolicy(), Options{Resolver: slowResolver(lookupTimeout - time.Second)})
		if _, err := e.dial(t.Context(), "tcp", "a.example.com:443"); reasonOf(err) != "private" {
			t.Errorf("%v, want private", err)
		}
	})
}

// The error for an internal name is the same whatever the internal resolver
// answers and however long it takes.
func TestARefusalRevealsNothingAboutTheInternalNetwork(t *testing.T) { // P06
	const name = "vault.corp"
	many := strings.Fields(strings.Repeat("10.1.0.1 ", maxAddresses+1))
	resolvers := map[string]Resolver{
		"does not exist":              &fakeResolver{},
		"has no address":              &fakeResolver{answers: map[string][][]string{name + ".": oneAnswer()}},
		"lies outside the allow-list": &fakeResolver{answers: map[string][][]string{name + ".": oneAnswer("10.2.0.1")}},
		"lies half outside":           &fakeResolver{answers: map[string][][]string{name + ".": oneAnswer("10.1.0.1", "10.2.0.1")}},
		"is public":                   &fakeResolver{answers: map[string][][]string{name + ".": oneAnswer("8.8.8.8")}},
		"is the metadata service":     &fakeResolver{answers: map[string][][]string{name + ".": oneAnswer("169.254.169.254")}},
		"has too many addresses":      &fakeResolver{answers: map[string][][]string{name + ".": oneAnswer(many...)}},
		"is never answered":           slowResolver(time.Hour),
	}
	for what, resolver := range resolvers {
		synctest.Test(t, func(t *testing.T) {
			p := DefaultPolicy()
			p.Allowlist = prefixes("10.1.0.0/16")
			e := New(p, Options{Resolver: resolver})
			_, err := e.dial(t.Context(), "tcp", name+":80")
			if want := "ssrf_blocked:internal_name:" + name; err == nil || err.Error() != want {
				t.Errorf("a name that %s: %v, want %s", what, err, want)
			}
		})
	}
}

// The error for a public name with a private address depends only on the address.
func TestAPublicNameWithAPrivateAddressIsRefusedByClass(t *testing.T) { // P06
	e := New(DefaultPolicy(), Options{Resolver: &fakeResolver{answers: map[string][][]string{
		"a.example.com.": oneAnswer("10.0.0.1"), "b.example.com.": oneAnswer("8.8.8.8", "10.0.0.1"), "c.example.com.": oneAnswer("::ffff:10.0.0.1"),
	}}})
	for _, host := range []string{"a", "b", "c"} {
		_, err := e.resolveHost(t.Context(), host+".example.com")
		if want := "ssrf_blocked:private:10.0.0.1"; err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", host, err, want)
		}
	}
}

func TestResolveReturnsTheAddressesThatAreDialled(t *testing.T) {
	e := New(DefaultPolicy(), Options{Resolver: &fakeResolver{answers: map[string][][]string{
		"a.example.com.": oneAnswer("8.8.8.8", "2606:4700:4700::1111"), "in.example.com.": oneAnswer("192.168.0.1"),
	}}})
	for url, want := range map[string]string{
		"https://a.example.com/": "[8.8.8.8 2606:4700:4700::1111]", "https://8.8.4.4/": "[8.8.4.4]",
		"https://in.example.com/": "private", "https://redis/": "single_label", "https://a.example.com:22/": "port",
		"https://nosuch.example.com/": "",
	} {
		addrs, err := e.Resolve(t.Context(), url)
		got := reasonOf(err)
		if err == nil {
			got = fmt.Sprint(addrs)
		}
		if got != want || want == "" && err == nil {
			t.Errorf("%s: %s (%v), want %s", url, got, err, want)
		}
	}
}
