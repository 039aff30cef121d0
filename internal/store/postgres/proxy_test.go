package postgres_test

import (
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// fault is what a proxy does with a message of a client.
type fault int

const (
	none        fault = iota
	cutBefore         // the connection ends, and the server does not get the message
	cutAfter          // the server gets the message, and the connection ends before there is an answer
	cutAnswer         // the server answers, and the connection ends before the client gets that
	stallAnswer       // the client gets no answer, and the connection stays
	stall             // the server does not get the message, nor any after it, and the connection stays
)

// proxy is between stores and the server, and cuts connections.
type proxy struct {
	*testing.T
	listener net.Listener
	server   string
	all      sync.WaitGroup

	mu    sync.Mutex
	rule  func(statement string) fault // of what is sent without arguments, such as COMMIT; nil = no fault
	conns map[net.Conn]bool
}

// newProxy returns a proxy, and the URL of the server by way of it.
func newProxy(t *testing.T, to string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{T: t, listener: l, server: u.Host, conns: map[net.Conn]bool{}}
	p.all.Go(p.accept)
	t.Cleanup(p.close)
	u.Host = l.Addr().String()
	return p, u.String()
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.all.Wait()
}

func (p *proxy) set(rule func(statement string) fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule = rule
}

func (p *proxy) faultOf(statement string) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rule == nil {
		return none
	}
	return p.rule(statement)
}

func (p *proxy) keep(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = true
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.keep(client)
		p.keep(server)
		answers := &answers{to: client}
		p.all.Go(func() {
			_, _ = io.Copy(answers, server)
			_ = client.Close()
		})
		p.all.Go(func() {
			p.forward(client, server, answers)
			_ = client.Close()
			_ = server.Close()
		})
	}
}

// answers are what the server says.
type answers struct {
	to   net.Conn
	mu   sync.Mutex
	hold chan struct{} // closed when the next answer has come, which the client does not get; nil = it gets all
}

func (a *answers) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.hold == nil {
		return a.to.Write(b)
	}
	select {
	case <-a.hold:
	default:
		close(a.hold)
	}
	return len(b), nil
}

// withhold returns a channel that is closed when the next answer has come, which the client does not get.
func (a *answers) withhold() chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hold = make(chan struct{})
	return a.hold
}

// forward forwards the messages of a client until the connection ends.
func (p *proxy) forward(client, server net.Conn, answers *answers) {
	for first := true; ; first = false {
		message, kind, err := readMessage(client, first)
		if err != nil {
			return
		}
		todo := none
		if kind == 'Q' {
			todo = p.faultOf(strings.TrimRight(string(message[5:]), "\x00"))
		}
		var come chan struct{}
		switch todo {
		case cutBefore:
			return
		case stall:
			_, _ = io.Copy(io.Discard, client)
			return
		case cutAnswer, stallAnswer:
			come = answers.withhold()
		}
		if _, err := server.Write(message); err != nil || todo == cutAfter {
			return
		}
		if todo == cutAnswer {
			<-come
			return
		}
	}
}

// readMessage reads a message of the protocol. The first one of a connection has no kind.
func readMessage(from io.Reader, first bool) (message []byte, kind byte, err error) {
	n := 5
	if first {
		n = 4
	}
	head := make([]byte, n)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, 0, err
	}
	if !first {
		kind = head[0]
	}
	message = make([]byte, n+int(binary.BigEndian.Uint32(head[n-4:]))-4)
	copy(message, head)
	_, err = io.ReadFull(from, message[n:])
	return message, kind, err
}

// proxied opens one more store, by way of a proxy.
func (r *replicas) proxied(caps org.Caps) (*database.Store, *proxy) {
	r.Helper()
	o := r.maker.options
	p, to := newProxy(r.T, o.URL)
	o.URL = to
	c, err := o.Connector()
	r.ok(err)
	return r.openOn(c, caps), p
}
