package httpd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/internal/surface/chat"
)

// These tests are about slow clients. They use virtual time, the real limits and
// in-memory connections (net.Pipe), which buffer nothing.

// pipeListener is a listener for in-memory connections.
type pipeListener struct {
	dialled chan net.Conn
	closed  chan struct{}
}

func (p *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialled:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipeListener) Close() error   { close(p.closed); return nil }
func (p *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// inVirtualTime serves h until do returns. dial opens a new connection.
func inVirtualTime(t *testing.T, h http.HandlerFunc, do func(t *testing.T, dial func() net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		l := &pipeListener{make(chan net.Conn), make(chan struct{})}
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() {
			served <- newTestAPI(h, Limits{}).Serve(ctx, l, slog.New(slog.DiscardHandler), func(context.Context) {})
		}()
		do(t, func() net.Conn {
			client, server := net.Pipe()
			l.dialled <- server
			return client
		})
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// readBody is a handler that reads its body like the routes of the API.
func readBody(most int64) http.HandlerFunc {
	a := &API{o: Options{Limits: Limits{}.withDefaults()}}
	return func(w http.ResponseWriter, r *http.Request) {
		a.serve(w, r, caller.Caller{}, surface.Route{Group: surface.Group{MaxBody: most}}, func(w http.ResponseWriter, r *http.Request, _ caller.Caller) {
			text, err := io.ReadAll(r.Body)
			if err != nil {
				chat.Errors().Write(w, err)
				return
			}
			fmt.Fprintf(w, "read %d bytes", len(text))
		})
	}
}

// received returns everything that the server sends, and when it closed the connection.
func received(c net.Conn) <-chan string {
	said := make(chan string, 1)
	began := time.Now()
	go func() {
		text, _ := io.ReadAll(c)
		said <- fmt.Sprintf("%s\nclosed after %v", text, time.Since(began))
	}()
	return said
}

// trickle sends the pieces with a pause before each, until a write fails.
func trickle(c net.Conn, every time.Duration, pieces []string) (done <-chan struct{}) {
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for _, piece := range pieces {
			time.Sleep(every)
			if _, err := io.WriteString(c, piece); err != nil {
				return
			}
		}
	}()
	return sent
}

// A client that sends its header byte by byte has ten seconds for all of it.
func TestASlowHeaderEndsTheConnection(t *testing.T) {
	inVirtualTime(t, func(http.ResponseWriter, *http.Request) { t.Error("there was a request") }, func(t *testing.T, dial func() net.Conn) {
		for name, header := range map[string]string{
			"nothing": "", "half a line": "GET / HTTP/1.1\r\nX-A: ", "endless lines": "GET / HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X-A: b\r\n", 100),
		} {
			c := dial()
			said := received(c)
			sent := trickle(c, 500*time.Millisecond, strings.Split(header, ""))
			if got := <-said; !strings.HasSuffix(got, "\nclosed after 10s") {
				t.Errorf("%s: the client received %q", name, got)
			}
			_ = c.Close()
			<-sent
		}
	})
}

func TestAnIdleConnectionIsClosed(t *testing.T) {
	inVirtualTime(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		said := received(c)
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		if got := <-said; !strings.HasSuffix(got, "hello\nclosed after 2m0s") {
			t.Errorf("the client received %q", got)
		}
		_ = c.Close()
	})
}

// A body may take any time if at least 1 KiB arrives in each 30 seconds.
func TestABodyMustMakeProgress(t *testing.T) {
	const header = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4096\r\n\r\n"
	kib := strings.Repeat("x", 1<<10)
	for _, tt := range []struct {
		name   string
		header string
		pieces []string // with 29 s before each
		want   string   // parts of what the client receives, separated by *
	}{
		{"one KiB in each 29 s", header, []string{kib, kib, kib, kib}, "200 OK*read 4096 bytes"},
		{"nothing at all", header, nil, "408*body_timeout*closed after 30s"},
		{"one KiB and no more", header, []string{kib}, "408*body_timeout*closed after 59s"},
		{"one byte less than a KiB", header, []string{kib[1:], "x"}, "408*body_timeout*closed after 30s"},
		{"one byte at a time", header, strings.Split(kib[:100], ""), "408*body_timeout*closed after 30s"},
		{"in chunks, one of which never comes", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
			[]string{"400\r\n" + kib + "\r\n"}, "408*body_timeout*closed after 59s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inVirtualTime(t, readBody(1<<20), func(t *testing.T, dial func() net.Conn) {
				c := dial()
				said := received(c)
				fmt.Fprint(c, tt.header)
				sent := trickle(c, 29*time.Second, tt.pieces)
				got := <-said
				for part := range strings.SplitSeq(tt.want, "*") {
					if !strings.Contains(got, part) {
						t.Errorf("the client received %q without %q", got, part)
					}
				}
				_ = c.Close()
				<-sent
			})
		})
	}
}

// No handler reads the body of a health check, but it has a deadline too.
func TestAnUnreadBodyHasADeadline(t *testing.T) {
	inVirtualTime(t, http.NotFound, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		said := received(c)
		fmt.Fprint(c, "GET /readyz HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
		if got := <-said; !strings.HasSuffix(got, "ready\n\nclosed after 30s") {
			t.Errorf("the client received %q", got)
		}
		_ = c.Close()
	})
}

// A client that accepts nothing of its response is disconnected, and its request
// is cancelled.
func TestAClientThatAcceptsNothingIsDisconnected(t *testing.T) {
	type end struct {
		after time.Duration
		err   error
		left  bool
	}
	var got end
	h := func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		for {
			_, err := w.Write(make([]byte, 4<<10))
			if err != nil {
				got = end{time.Since(began), err, r.Context().Err() != nil}
				return
			}
		}
	}
	inVirtualTime(t, h, func(t *testing.T, dial func() net.Conn) {
		c := dial()
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		time.Sleep(time.Minute)
		synctest.Wait()
		if got.after != 30*time.Second || !errors.Is(got.err, os.ErrDeadlineExceeded) || !got.left {
			t.Errorf("the request ended with %+v", got)
		}
		_ = c.Close()
	})
}

// A client that accepts a little at a time gets the whole response.
func TestASlowClientGetsTheWholeResponse(t *testing.T) {
	const size = 2 << 20
	for name, write := range map[string]func(w http.ResponseWriter){
		"in one piece":       func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, size)) },
		"in many pieces":     func(w http.ResponseWriter) { _, _ = io.Copy(w, bytes.NewReader(make([]byte, size))) },
		"after long silence": func(w http.ResponseWriter) { time.Sleep(time.Hour); _, _ = w.Write(make([]byte, size)) },
	} {
		t.Run(name, func(t *testing.T) {
			inVirtualTime(t, func(w http.ResponseWriter, _ *http.Request) { write(w) }, func(t *testing.T, dial func() net.Conn) {
				c := dial()
				fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
				began := time.Now()
				resp, err := http.ReadResponse(bufio.NewReader(slowReader{c}), nil)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				if err != nil || len(got) != size || time.Since(began) < 10*time.Minute {
					t.Errorf("after %v the client had %d bytes: %v", time.Since(began), len(got), err)
				}
				_ = c.Close()
			})
		})
	}
}

// slowReader reads 64 KiB in 20 s.
type slowReader struct{ net.Conn }

func (s slowReader) Read(p []byte) (int, error) {
	time.Sleep(20 * time.Second * time.Duration(min(len(p), 4<<10)) / (64 << 10))
	return s.Conn.Read(p[:min(len(p), 4<<10)])
}

// A write deadline that a handler sets replaces the connection's until it is
// cleared.
func TestAHandlersWriteDeadlineReplacesTheConnections(t *testing.T) {
	for want, set := range map[time.Duration]func(c *http.ResponseController){
		time.Second:      func(c *http.ResponseController) { _ = c.SetWriteDeadline(time.Now().Add(time.Second)) },
		45 * time.Second: func(c *http.ResponseController) { _ = c.SetWriteDeadline(time.Now().Add(45 * time.Second)) },
		30 * time.Second: func(c *http.ResponseController) {
			_ = c.SetWriteDeadline(time.Now().Add(time.Second))
			_ = c.SetWriteDeadline(time.Time{})
		},
	} {
		var got time.Duration
		h := func(w http.ResponseWriter, _ *http.Request) {
			began := time.Now()
			set(http.NewResponseController(w))
			_, _ = w.Write(make([]byte, 100<<10))
			got = time.Since(began)
		}
		inVirtualTime(t, h, func(t *testing.T, dial func() net.Conn) {
			c := dial()
			fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			time.Sleep(time.Minute)
			synctest.Wait()
			if got != want {
				t.Errorf("the write ended after %v, want %v", got, want)
			}
			_ = c.Close()
		})
	}
}
