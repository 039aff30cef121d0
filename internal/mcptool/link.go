package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

var _ mcp.Connection = (*link)(nil)

// wire carries messages to and from a server that answers on one stream. It is
// implemented by [stdioWire] and [eventWire].
type wire interface {
	// next returns the server's next message, whose data is the caller's. Its
	// error ends the wire and says why. It is called by one goroutine.
	next() (message, error)

	// send delivers one message. It notes in x what was sent and answered; its
	// error concerns this message only. It is called concurrently.
	send(ctx context.Context, data []byte, x *exchange) error

	// close ends the wire, so that next returns, and waits for what it owns. It
	// may be called more than once.
	close()
}

// link is a connection of the SDK over a wire. It does for one stream what
// [transport] does for HTTP: the answer to a request goes raw to the request's
// exchange and as a small frame to the SDK, and what a server says amiss fails
// one request and not the session.
type link struct {
	client   *Client
	wire     wire
	incoming chan jsonrpc.Message // to the SDK
	closed   chan struct{}        // closed when the link has ended
	replies  chan struct{}        // holds one for each request of the server under way
	noise    noise                // of the reading goroutine

	mu      sync.Mutex // guards what follows
	ended   error      // why; nil while it lives
	pending map[string]*awaited
}

// awaited is an answer that has not come yet.
type awaited struct {
	*answer
	over chan struct{} // closed when nobody waits any more
}

// newLink reads w until it ends. The caller belongs to the client's work.
func newLink(c *Client, w wire) *link {
	l := &link{
		client: c, wire: w,
		incoming: make(chan jsonrpc.Message), closed: make(chan struct{}),
		replies: make(chan struct{}, maxAsked), pending: map[string]*awaited{},
	}
	unwatch := context.AfterFunc(c.life, func() { l.end(errClosed) })
	c.work.Go(func() {
		defer unwatch()
		l.read()
	})
	return l
}

// SessionID implements [mcp.Connection].
func (l *link) SessionID() string { return "" }

// Close implements [mcp.Connection]. It does not wait: the SDK holds a lock.
func (l *link) Close() error {
	l.end(errSessionLost)
	return nil
}

// Read implements [mcp.Connection].
func (l *link) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-l.incoming:
		return m, nil
	case <-l.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Write implements [mcp.Connection]. An error would break the connection, so
// that there is one only when it is broken, or when ctx is done.
func (l *link) Write(ctx context.Context, m jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	r, isRequest := m.(*jsonrpc.Request)
	switch {
	case isRequest && r.IsCall():
		return l.ask(ctx, r, data)
	case isRequest && r.Method == methodCancelled:
		// Whoever gave up must not wait for the server that made him do so.
		if exchangeOf(ctx).method() != methodInitialize { // the one request that may not be cancelled
			l.spawn(func() { l.tell(ctx, data) })
		}
	default:
		l.tell(ctx, data)
	}
	return nil
}

// ask sends a request and remembers who waits for the answer, until ctx is done.
func (l *link) ask(ctx context.Context, r *jsonrpc.Request, data []byte) error {
	a := &awaited{
		answer: &answer{exchange: exchangeOf(ctx), id: encode(r.ID.Raw()), method: r.Method},
		over:   make(chan struct{}),
	}
	a.exchange.begin(r.Method, r.Method != methodInitialize && r.Method != methodDiscover)
	sent := make(chan error, 1)
	if !l.await(a) || !l.spawn(func() { sent <- l.wire.send(ctx, data, a.exchange) }) {
		a.exchange.update(func(o *outcome) { o.err = errSessionLost })
		return errSessionLost
	}
	context.AfterFunc(ctx, func() { l.take(a.id) })
	select {
	case err := <-sent:
		if err != nil && l.take(a.id) != nil {
			l.deliver(a.fail(err))
		}
	case <-a.over:
	}
	return ctx.Err()
}

// tell sends a message that has no answer.
func (l *link) tell(ctx context.Context, data []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), notifyTimeout)
	defer cancel()
	if err := l.wire.send(ctx, data, &exchange{}); err != nil {
		l.client.log.Debug("mcp message not delivered", "error", plain(err))
	}
}

// spawn runs f unless the link has ended. The reader, which is running then,
// keeps the client's work from being over.
func (l *link) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return false
	}
	l.client.work.Go(f)
	return true
}

// await remembers a until it is taken; false if the link has ended.
func (l *link) await(a *awaited) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return false
	}
	l.pending[string(a.id)] = a
	return true
}

// take returns who waits for an answer with the given id, and forgets him; nil
// for nobody. An error without an id is for the only one who waits.
func (l *link) take(id json.RawMessage) *awaited {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.pending[string(id)]
	if !present(id) && len(l.pending) == 1 {
		for _, a = range l.pending {
			break
		}
	}
	if a != nil {
		delete(l.pending, string(a.id))
		close(a.over)
	}
	return a
}

// end ends the link once: whoever waits is told why.
func (l *link) end(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return
	}
	l.ended = why
	l.client.work.Go(l.wire.close) // the reader still runs, so that the work is not over
	for id, a := range l.pending {
		a.exchange.update(func(o *outcome) {
			o.err = why
			if !o.sent {
				o.err = errors.Join(errSessionLost, why)
			}
		})
		delete(l.pending, id)
		close(a.over)
	}
	close(l.closed)
}

// read takes the server's messages until the wire ends.
func (l *link) read() {
	var err error
	for err == nil {
		var m message
		if m, err = l.wire.next(); err == nil {
			err = l.receive(m)
		}
	}
	if l.why() == nil {
		l.client.linkEnds(l, err)
	}
	l.end(err)
}

// why returns what ended the link; nil while it lives.
func (l *link) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// receive gives a message to whom it belongs. Its error is a flood.
func (l *link) receive(m message) error {
	if m.tooLarge {
		if a := l.take(m.id); a != nil {
			l.deliver(a.fail(errTooLarge))
			return nil
		}
		return l.noise.add(maxNoise/2, time.Now())
	}
	f, err := decodeFrame(m.data)
	switch {
	case err != nil:
		l.client.log.Debug("MCP server sent a message that is not JSON-RPC", "bytes", len(m.data))
	case f.Method == nil && (present(f.ID) || present(f.Error)):
		if a := l.take(f.ID); a != nil {
			l.settle(a, f)
			return nil
		}
	case f.asks():
		l.reply(f)
	case f.announces():
		l.client.changed()
	}
	return l.noise.add(len(m.data)+1, time.Now())
}

// settle hands the answer f to a, and what the SDK may see of it to the SDK.
func (l *link) settle(a *awaited, f frame) {
	if !f.answers(a.id) {
		l.deliver(a.fail(fmt.Errorf("%w: it has neither result nor error", errMalformed)))
		return
	}
	l.deliver(a.settle(f))
}

// deliver gives a frame of ours to the SDK.
func (l *link) deliver(data []byte) {
	m, err := jsonrpc.DecodeMessage(data)
	if err != nil { // the handshake's result, which passes whole, is beyond the SDK
		l.end(fmt.Errorf("%w: %w", errMalformed, err))
		return
	}
	select {
	case l.incoming <- m:
	case <-l.closed:
	}
}

// reply answers a request of the server, unless too many are under way.
func (l *link) reply(f frame) {
	select {
	case l.replies <- struct{}{}:
	default:
		return
	}
	data := replyTo(f)
	l.spawn(func() {
		defer func() { <-l.replies }()
		l.tell(l.client.life, data)
	})
}

// replyTo returns the answer to a request of the server: it may ask whether we
// are there, and nothing else.
func replyTo(f frame) []byte {
	reply := map[string]any{"jsonrpc": "2.0", "id": f.ID}
	if *f.Method == "ping" {
		reply["result"] = struct{}{}
	} else {
		reply["error"] = map[string]any{"code": codeMethodNotFound, "message": "method not found"}
	}
	return encode(reply)
}
