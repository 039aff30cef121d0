package httpd

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// exchange sends a raw request. It returns the response's status and whether the
// server closes the connection.
func exchange(t *testing.T, url, request string) (status int, closed bool) {
	t.Helper()
	c := connect(t, url)
	defer c.Close()
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode, resp.Close
}

func connect(t *testing.T, url string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	return c
}

// Each limit of a header is exact to the byte.
func TestHeaderLimits(t *testing.T) {
	url, _ := serveTest(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	const line, host = "GET / HTTP/1.1\r\n", "Host: x\r\n"
	field := func(size int) string { return "A: " + strings.Repeat("a", size-len("A: \r\n")) + "\r\n" }
	fields := func(n int) string { return strings.Repeat("A: b\r\n", n) }
	full := maxHeader - len(line) - len(host) - 7*maxField
	path := func(size int) string {
		return "GET /" + strings.Repeat("a", size-len("GET / HTTP/1.1\r\n")) + " HTTP/1.1\r\n"
	}
	for _, tt := range []struct {
		name, request string
		status        int
	}{
		{"100 fields", line + host + fields(maxFields-1), 200},
		{"101 fields", line + host + fields(maxFields), 431},
		{"a field of 8 KiB", line + host + field(maxField), 200},
		{"a field of one byte more", line + host + field(maxField+1), 431},
		{"64 KiB", line + host + strings.Repeat(field(maxField), 7) + field(full), 200},
		{"one byte more", line + host + strings.Repeat(field(maxField), 7) + field(full+1), 431},
		{"a line of 8 KiB", path(maxField) + host, 200},
		{"a line of one byte more", path(maxField+1) + host, 431},
		{"a name of more than 8 KiB", line + host + strings.Repeat("a", maxField) + ": \r\n", 431},
		{"a host of more than 8 KiB", line + "Host: " + strings.Repeat("a", maxField+1) + "\r\n", 431},
		{"a megabyte", line + host + strings.Repeat(field(maxField), 128), 431},
		{"two hosts", line + host + host, 400},
		{"no host", line, 400},
		{"two lengths", "POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nContent-Length: 2\r\n", 400},
		{"a transfer coding that is not known", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked, gzip\r\n", 501},
		{"a length and a transfer coding that is not known", "POST / HTTP/1.1\r\n" + host + "Content-Length: 1\r\nTransfer-Encoding: chunked, gzip\r\n", 501},
		{"two transfer codings", "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 501},
		{"a length that is no number", "POST / HTTP/1.1\r\n" + host + "Content-Length: +1\r\n", 400},
		{"a space before the colon", line + host + "A : b\r\n", 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if status, _ := exchange(t, url, tt.request+"\r\n"); status != tt.status {
				t.Errorf("status %d, want %d", status, tt.status)
			}
		})
	}
}

// RFC 9112, section 6.3: of a request with both Content-Length and
// Transfer-Encoding: chunked, the length is ignored. What follows the last chunk
// is the next request.
func TestChunkedOverridesContentLength(t *testing.T) {
	url, _ := serveTest(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %q %v %d %q", r.URL.Path, body, err, r.ContentLength, r.Header["Content-Length"])
	})
	for name, fields := range map[string]string{
		"the length first": "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
		"the chunks first": "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := connect(t, url)
			fmt.Fprintf(c, "POST /first HTTP/1.1\r\nHost: x\r\n%s\r\n5\r\nhello\r\n0\r\n\r\nGET /second HTTP/1.1\r\nHost: x\r\n\r\n", fields)
			answers := bufio.NewReader(c)
			for _, want := range []string{`/first "hello" <nil> -1 []`, `/second "" <nil> 0 []`} {
				resp, err := http.ReadResponse(answers, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(resp.Body); err != nil || string(got) != want {
					t.Errorf("%s, %v; want %s", got, err, want)
				}
			}
		})
	}
}

// The server does not speak HTTP/2, so floods of HTTP/2 frames cannot reach it.
func TestHTTP2IsNotSupported(t *testing.T) {
	url, _ := serveTest(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })
	if status, closed := exchange(t, url, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); status < 400 || !closed {
		t.Errorf("HTTP/2 preface: status %d, closed %t", status, closed)
	}
	upgrade := "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n"
	if status, _ := exchange(t, url, upgrade); status != 200 {
		t.Errorf("HTTP/2 upgrade: status %d", status)
	}
}

func TestAConnectionAboveTheLimitIsRefused(t *testing.T) {
	const most = 3
	url, _ := serveTestWithLimits(t, Limits{Connections: most}, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	ask := func(c net.Conn) *http.Response {
		t.Helper()
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	var clients []net.Conn
	for i := range most {
		clients = append(clients, connect(t, url))
		if resp := ask(clients[i]); resp.StatusCode != 200 {
			t.Fatalf("client %d got %d", i, resp.StatusCode)
		}
	}
	defer func() {
		for _, c := range clients {
			_ = c.Close()
		}
	}()
	for range 2 * most { // a refused connection does not count
		c := connect(t, url)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil) // without a request
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" || !resp.Close || !strings.Contains(string(body), "too_many_connections") {
			t.Errorf("a connection above the limit got %d, %v: %s", resp.StatusCode, resp.Header, body)
		}
		if id := resp.Header.Get("Turnpike-Request-Id"); !strings.HasPrefix(id, "req_") || resp.Header.Get("X-Request-Id") != id {
			t.Errorf("a connection above the limit got no request id: %v", resp.Header)
		}
		_ = c.Close()
	}
	if resp := ask(clients[0]); resp.StatusCode != 200 {
		t.Errorf("an earlier client got %d", resp.StatusCode)
	}
	_ = clients[0].Close()
	for until := time.Now().Add(10 * time.Second); ; { // the server notices the close a little later
		c := connect(t, url)
		resp := ask(c)
		_ = c.Close()
		if resp.StatusCode == 200 {
			break
		}
		if time.Now().After(until) {
			t.Fatal("the place of a closed connection was not freed")
		}
	}
}

// Many incomplete requests do not delay another client, and are closed at the
// header timeout.
func TestManyIncompleteRequestsDelayNoOtherClient(t *testing.T) {
	const slow = 300
	url, _ := serveTestWithLimits(t, Limits{HeaderTimeout: 500 * time.Millisecond}, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	var halves []net.Conn
	for range slow {
		c := connect(t, url)
		fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nX-A: b")
		halves = append(halves, c)
	}
	if status, body := get(t, url+"/"); status != 200 || body != "ok" {
		t.Errorf("status %d, %q for the other client", status, body)
	}
	for i, c := range halves {
		if _, err := io.ReadAll(c); err != nil { // until the server closes it, before the test's deadline
			t.Fatalf("incomplete request %d: %v", i, err)
		}
		_ = c.Close()
	}
}

func TestConnectionsFitTheLimitOnOpenFiles(t *testing.T) {
	for files, want := range map[uint64]uint64{0: 32, 64: 32, 127: 32, 128: 32, 256: 96, 1024: 480, 1 << 20: 524256} {
		if got := maxClients(files); got != want || files >= 128 && 2*got+64 > files {
			t.Errorf("%d clients fit into %d files, want %d", got, files, want)
		}
	}
}

func TestDefaultLimitsAreTheDocumentedOnes(t *testing.T) {
	got := (Limits{}).withDefaults()
	if got.Connections != 20_000 || got.HeaderTimeout != 10*time.Second || got.IdleTimeout != 120*time.Second ||
		got.BodyTimeout != 30*time.Second || got.StallTimeout != 30*time.Second {
		t.Errorf("%+v", got)
	}
	if got.withDefaults() != got {
		t.Errorf("the defaults of %+v are %+v", got, got.withDefaults())
	}
	mine := Limits{Connections: 1, HeaderTimeout: 2, IdleTimeout: 3, BodyTimeout: 4, StallTimeout: 5}.withDefaults()
	if mine.Connections != 1 || mine.HeaderTimeout != 2 || mine.IdleTimeout != 3 || mine.BodyTimeout != 4 || mine.StallTimeout != 5 {
		t.Errorf("%+v", mine)
	}
}

// A body above the limit is refused, exact to the byte, with and without a
// declared length. A client that is still sending reads the error.
func TestABodyIsLimited(t *testing.T) {
	const most = 1 << 20
	url, _ := serveTest(t, readBody(most))
	for _, tt := range []struct {
		size, status int
	}{{0, 200}, {most, 200}, {most + 1, 413}, {4 * most, 413}} {
		for _, how := range []string{"declared", "in chunks"} {
			t.Run(fmt.Sprintf("%d bytes, %s", tt.size, how), func(t *testing.T) {
				text := io.Reader(strings.NewReader(strings.Repeat("x", tt.size)))
				if how == "in chunks" {
					text = struct{ io.Reader }{text}
				}
				client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
				resp, err := client.Post(url, "application/json", text)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				said, _ := io.ReadAll(resp.Body)
				if resp.StatusCode != tt.status || tt.status == 200 && string(said) != fmt.Sprintf("read %d bytes", tt.size) {
					t.Errorf("status %d: %s", resp.StatusCode, said)
				}
			})
		}
	}
}

// The unread rest of a refused body is never parsed as the next request.
func TestARefusedBodyIsNotParsedAsARequest(t *testing.T) {
	var paths []string
	url, stop := serveTest(t, func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		readBody(10)(w, r)
	})
	status, closed := exchange(t, url, "POST /first HTTP/1.1\r\nHost: x\r\nContent-Length: 44\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\nGET /second HTTP/1.1\r\nHost: x\r\n\r\n")
	if err := stop(); err != nil {
		t.Error(err)
	}
	if status != 413 || !closed || !slices.Equal(paths, []string{"/first"}) {
		t.Errorf("status %d, closed %t, asked for %v", status, closed, paths)
	}
}

// The orgs' shares are effective only if Requests is at most Connections.
func TestRequestsAreAtMostConnections(t *testing.T) {
	l := Limits{Connections: 100, Requests: 1000}.withDefaults()
	if l.Requests != 100 {
		t.Errorf("%d requests on %d connections", l.Requests, l.Connections)
	}
	if files, known := openFileLimit(); known {
		if l := (Limits{Connections: 1 << 30, Requests: 1 << 30}).withDefaults(); uint64(l.Requests) != min(maxClients(files), 1<<30) {
			t.Errorf("%d requests with %d open files", l.Requests, files)
		}
	}
}
