package egress

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// testTimeout bounds how long a test waits.
const testTimeout = 20 * time.Second

// newLoopbackEgress returns an Egress that allows this host's loopback addresses and resolves
// hosts to them.
func newLoopbackEgress(t *testing.T, hosts ...string) *Egress {
	t.Helper()
	p := DefaultPolicy()
	p.Allowlist = prefixes("127.0.0.1/32", "::1/128")
	answers := map[string][][]string{}
	for _, host := range hosts {
		answers[host+"."] = oneAnswer("127.0.0.1")
	}
	e := New(p, Options{Resolver: &fakeResolver{answers: answers}})
	t.Cleanup(e.CloseIdleConnections)
	return e
}

// fetch sends a request and returns the response and its body.
func fetch(t *testing.T, e *Egress, method, url string) (*http.Response, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := e.Guarded(GuardedOptions{}).Do(r)
	if err != nil {
		if ctx.Err() != nil {
			t.Errorf("%s %s did not end by itself", method, url)
		}
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// startTLSServer starts a TLS server with HTTP/2 and a certificate for hosts. It returns
// the port and the number of accepted connections.
func startTLSServer(t *testing.T, e *Egress, handler http.HandlerFunc, hosts ...string) (port string, connections *atomic.Int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: hosts, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	e.guarded.Load().TLSClientConfig = &tls.Config{RootCAs: roots}

	connections = new(atomic.Int64)
	srv := httptest.NewUnstartedServer(handler)
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = nil
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	_, port, err = net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port, connections
}

func writeProtocol(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }

func TestAnHTTP2ConnectionIsNotUsedForAnotherHost(t *testing.T) {
	e := newLoopbackEgress(t, "a.example.com", "b.example.com")
	e.resolver.(*fakeResolver).answers["inside.example.com."] = oneAnswer("10.0.0.1")
	port, connections := startTLSServer(t, e, writeProtocol, "a.example.com", "b.example.com", "inside.example.com")
	for i, want := range []struct {
		host        string
		connections int64
	}{{"a.example.com", 1}, {"a.example.com", 1}, {"b.example.com", 2}, {"a.example.com", 2}} {
		_, body, err := fetch(t, e, http.MethodGet, "https://"+want.host+":"+port+"/")
		if err != nil || body != "HTTP/2.0" {
			t.Fatalf("request %d: %q, %v, want HTTP/2", i, body, err)
		}
		if got := connections.Load(); got != want.connections {
			t.Errorf("request %d, to %s: %d connections, want %d", i, want.host, got, want.connections)
		}
	}
	// The open connection's certificate is valid for this name, but its address is blocked.
	if _, _, err := fetch(t, e, http.MethodGet, "https://inside.example.com:"+port+"/"); reasonOf(err) != "private" {
		t.Errorf("%v, want private", err)
	}
}

func TestACertificateMustMatchTheNameInTheURL(t *testing.T) {
	e := newLoopbackEgress(t, "a.example.com", "b.example.com")
	port, _ := startTLSServer(t, e, writeProtocol, "a.example.com")
	if _, _, err := fetch(t, e, http.MethodGet, "https://a.example.com:"+port+"/"); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"b.example.com", "127.0.0.1"} {
		_, _, err := fetch(t, e, http.MethodGet, "https://"+host+":"+port+"/")
		if err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("%s: %v, want a refused certificate", host, err)
		}
	}
}

func TestAResponseCannotRedirectTheNextRequest(t *testing.T) { // Alt-Svc, Refresh
	var elsewhere atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	e := newLoopbackEgress(t, "a.example.com")
	address := other.Listener.Addr().String()
	alternative := fmt.Sprintf(`h2=%q; ma=86400, h3="127.0.0.1:1", http/1.1=%[1]q`, address)
	port, connections := startTLSServer(t, e, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Alt-Svc", alternative)
		w.Header().Set("Refresh", "0; url=http://"+address)
		writeProtocol(w, r)
	}, "a.example.com")
	for range 3 {
		if _, _, err := fetch(t, e, http.MethodGet, "https://a.example.com:"+port+"/"); err != nil {
			t.Fatal(err)
		}
	}
	if connections.Load() != 1 || elsewhere.Load() != 0 {
		t.Errorf("%d connections, %d requests elsewhere", connections.Load(), elsewhere.Load())
	}
}

// startRawServer answers each connection with the output of write and closes it.
func startRawServer(t *testing.T, write func(io.Writer) error) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.SetDeadline(time.Now().Add(testTimeout))
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_ = write(conn)
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-ended
	})
	return "http://" + l.Addr().String() + "/"
}

func TestAResponseThatNeverStartsFails(t *testing.T) { // floods of 1xx responses
	for name, piece := range map[string]string{
		"informational answers":                "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n",
		"informational answers without fields": "HTTP/1.1 102 Processing\r\n\r\n",
		"one informational header":             "X-A: b\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			url := startRawServer(t, func(w io.Writer) error {
				if name == "one informational header" {
					fmt.Fprint(w, "HTTP/1.1 103 Early Hints\r\n")
				}
				chunk := strings.Repeat(piece, 64)
				for {
					if _, err := io.WriteString(w, chunk); err != nil {
						return err
					}
				}
			})
			if _, _, err := fetch(t, newLoopbackEgress(t), http.MethodGet, url); err == nil {
				t.Error("there was an answer")
			}
		})
	}
}

func TestAResponseHeaderIsLimitedOnHTTP2(t *testing.T) {
	e := newLoopbackEgress(t, "a.example.com")
	port, _ := startTLSServer(t, e, func(w http.ResponseWriter, _ *http.Request) {
		for i := range 20 {
			w.Header().Set(fmt.Sprintf("X-Big-%d", i), strings.Repeat("x", maxResponseHeader/10))
		}
	}, "a.example.com")
	if _, _, err := fetch(t, e, http.MethodGet, "https://a.example.com:"+port+"/"); err == nil {
		t.Error("a header beyond the cap was accepted")
	}
}

// A compressed response arrives compressed, so it cannot expand past a limit on
// bytes.
func TestResponsesAreNotDecompressed(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		if asked := r.Header.Get("Accept-Encoding"); asked != "" {
			t.Errorf("%s: compression was asked for: %s", r.Proto, asked)
		}
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = z.Write(make([]byte, 1<<20))
		_ = z.Close()
	}
	plain := httptest.NewServer(http.HandlerFunc(handler))
	defer plain.Close()
	e := newLoopbackEgress(t, "a.example.com")
	port, _ := startTLSServer(t, e, handler, "a.example.com")
	for _, url := range []string{plain.URL, "https://a.example.com:" + port + "/"} {
		resp, body, err := fetch(t, e, http.MethodGet, url)
		if err != nil {
			t.Fatal(err)
		}
		if len(body) > 1<<14 || resp.Uncompressed || resp.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: %d bytes, uncompressed %t", resp.Proto, len(body), resp.Uncompressed)
		}
	}
}

// No redirect is followed, whatever its method, status or target.
func TestNoKindOfRedirectIsFollowed(t *testing.T) { // K05
	long := "http://a.example.com/" + strings.Repeat("x", 9<<10)
	for _, c := range []struct {
		name, method, location string
		status                 int
		want                   string
	}{
		{"a 301", "GET", "http://127.0.0.2/", 301, "redirect"},
		{"a 303 of a POST", "POST", "http://127.0.0.2/", 303, "redirect"},
		{"a 307 of a POST", "POST", "http://127.0.0.2/", 307, "redirect"},
		{"a 308 of a POST", "POST", "http://127.0.0.2/", 308, "redirect"},
		{"a 307 of a POST to a public name", "POST", "http://a.example.com/", 307, ""},
		{"to the metadata service", "GET", "http://169.254.169.254/latest", 302, "redirect"},
		{"to its IPv6 form", "GET", "http://[::ffff:169.254.169.254]/", 302, "redirect"},
		{"to a decimal address", "GET", "http://2130706433/", 302, "redirect"},
		{"to another scheme's form", "GET", "//127.0.0.2/", 302, "redirect"},
		{"to a file", "GET", "file:///etc/passwd", 302, "redirect"},
		{"to gopher", "GET", "gopher://a.example.com/_x", 302, "redirect"},
		{"to an unknown scheme", "GET", "x:y", 302, "redirect"},
		{"to an internal name", "GET", "http://vault.corp/", 302, "redirect"},
		{"in a loop", "GET", "/", 302, ""},
		{"to a URL of 9 KiB", "GET", long, 302, ""},
		{"to an invalid URL", "GET", "http://[::1/", 302, ""},
		{"to a name that does not exist", "GET", "http://nosuch.example.com/", 302, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var hits atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				hits.Add(1)
				w.Header().Set("Location", c.location)
				w.WriteHeader(c.status)
			}))
			defer srv.Close()
			_, _, err := fetch(t, newLoopbackEgress(t, "a.example.com"), c.method, srv.URL)
			if err == nil || reasonOf(err) != c.want {
				t.Errorf("%.200v, want reason %q", err, c.want)
			}
			if hits.Load() != 1 {
				t.Errorf("%d requests, want 1", hits.Load())
			}
		})
	}
}

func TestARedirectFromHTTPSToHTTPIsNotFollowed(t *testing.T) { // K05
	e := newLoopbackEgress(t, "a.example.com")
	var plain atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { plain.Add(1) }))
	defer srv.Close()
	port, _ := startTLSServer(t, e, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, srv.URL, http.StatusFound)
	}, "a.example.com")
	if _, _, err := fetch(t, e, http.MethodGet, "https://a.example.com:"+port+"/"); err == nil || plain.Load() != 0 {
		t.Errorf("%v, and %d requests without TLS", err, plain.Load())
	}
}

func TestAHostWithIPv6OnlyIsReached(t *testing.T) {
	l, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	}
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(writeProtocol)}}
	srv.Start()
	defer srv.Close()
	e := newLoopbackEgress(t)
	e.resolver.(*fakeResolver).answers["six.example.com."] = oneAnswer("::1")
	port := l.Addr().(*net.TCPAddr).Port
	for _, host := range []string{"six.example.com", "[::1]"} {
		if _, body, err := fetch(t, e, http.MethodGet, fmt.Sprintf("http://%s:%d/", host, port)); err != nil || body == "" {
			t.Errorf("%s: %q, %v", host, body, err)
		}
	}
}

// The Egress copies the policy: later changes to its lists affect neither idle
// nor new connections.
func TestThePolicyIsCopied(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(writeProtocol))
	defer srv.Close()
	p := DefaultPolicy()
	p.Allowlist, p.ExtraBlocked = prefixes("127.0.0.1/32"), prefixes("8.8.8.8/32")
	e := New(p, Options{Resolver: &fakeResolver{}})
	defer e.CloseIdleConnections()
	for range 2 {
		if _, _, err := fetch(t, e, http.MethodGet, srv.URL); err != nil {
			t.Fatal(err)
		}
		p.Allowlist[0], p.ExtraBlocked[0] = prefixes("10.0.0.0/8")[0], prefixes("127.0.0.0/8")[0]
	}
	e.CloseIdleConnections()
	if _, _, err := fetch(t, e, http.MethodGet, srv.URL); err != nil {
		t.Error(err)
	}
	if _, err := e.CheckURL("http://8.8.8.8/"); reasonOf(err) != "extra_blocked" {
		t.Errorf("%v, want extra_blocked", err)
	}
}

func TestNoListenerOfThisProcessIsConnectedTo(t *testing.T) {
	p := DefaultPolicy()
	p.Allowlist = prefixes("0.0.0.0/0", "::/0")
	for _, listen := range []string{"127.0.0.1:8080", "0.0.0.0:8080", "[::]:8080", "[::ffff:127.0.0.1]:8080"} {
		e := New(p, Options{Listen: []netip.AddrPort{netip.MustParseAddrPort(listen)}, Resolver: &fakeResolver{answers: map[string][][]string{
			"me.example.com.": oneAnswer("127.0.0.1"), "zero.example.com.": oneAnswer("0.0.0.0"),
		}}})
		for _, host := range []string{"127.0.0.1", "0.0.0.0", "[::]", "[::ffff:127.0.0.1]", "[::ffff:0.0.0.0]", "me.example.com", "zero.example.com"} {
			if err := get(t, e, "http://"+host+":8080/"); reasonOf(err) != "self" {
				t.Errorf("listening on %s, connecting to %s: %v, want self", listen, host, err)
			}
			if _, err := e.Resolve(t.Context(), "http://"+host+":8080/"); reasonOf(err) != "self" {
				t.Errorf("listening on %s, checking %s: %v, want self", listen, host, err)
			}
			if _, err := e.Resolve(t.Context(), "http://"+host+":8081/"); err != nil {
				t.Errorf("listening on %s, another port of %s: %v", listen, host, err)
			}
		}
	}
	everywhere := New(p, Options{Listen: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:8080")}})
	for _, host := range append(hostAddresses(), netip.MustParseAddr("127.9.9.9"), netip.IPv6Loopback()) {
		err := everywhere.control("tcp", netip.AddrPortFrom(host, 8080).String(), nil)
		if reasonOf(err) != "self" {
			t.Errorf("listening everywhere, connecting to %s: %v, want self", host, err)
		}
	}
}

// Parallel calls to one server use its connections again: MCP servers get up to 256
// calls of an org at a time.
func TestParallelRequestsReuseConnections(t *testing.T) {
	const n = 256
	var opened atomic.Int64
	var wave sync.WaitGroup // all requests of a wave are in progress at the same time
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wave.Done()
		wave.Wait()
		writeProtocol(w, r)
	}))
	srv.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	e := newLoopbackEgress(t)
	defer e.CloseIdleConnections() // before the server waits for them
	for range 3 {
		wave.Add(n)
		var clients sync.WaitGroup
		for range n {
			clients.Go(func() {
				if _, _, err := fetch(t, e, http.MethodGet, srv.URL); err != nil {
					t.Error(err)
				}
			})
		}
		clients.Wait()
	}
	if got := opened.Load(); got != n {
		t.Errorf("%d connections for 3 times %d parallel requests", got, n)
	}
}
