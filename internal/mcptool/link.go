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
	// next returns the server's next message. The caller owns its data. An error is the
	// reason for which the wire has ended. One goroutine calls it.
	next() (message, error)

	// send sends one message, and stores in x whether it may have been sent. An error
	// concerns this message only. It is called concurrently.
	send(ctx context.Context, data []byte, x *exchange) error

	// close ends the wire, so that next returns, and waits for its goroutines and processes.
	// It may be called more than once.
	close()
}

// link is a connection of the SDK over a wire. It does for one stream what [transport] does
// for HTTP: it stores the raw answer in the exchange of the request, and gives the SDK a small
// message. An invalid message of the server fails one request, not the session.
type link struct {
	client   *Client
	wire     wire
	incoming chan jsonrpc.Message // to the SDK
	closed   chan struct{}        // closed when the link has ended
	replies  chan struct{}        // has an element for each request of the server in progress
	noise    noise                // of the reading goroutine

	mu      sync.Mutex          // guards what follows
	ended   error               // the reason; nil = it has not ended
	pending map[string]*awaited // by the canonical id
}

// awaited is a request without an answer yet.
type awaited struct {
	*answer
	over chan struct{} // closed when the request is no longer pending
}

// newLink returns a link that reads w until it ends. It must be called within c.work.
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

// Write implements [mcp.Connection]. The SDK closes the connection after an error, so Write
// returns one only if the link or ctx has ended.
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
		// The caller must not wait for a slow server.
		if exchangeOf(ctx).method() != methodInitialize { // the one request that may not be cancelled
			l.spawn(func() { l.tell(ctx, data) })
		}
	default:
		l.tell(ctx, data)
	}
	return nil
}

// ask sends a request. It is pending until its answer comes or ctx ends.
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

// tell sends a message without an answer.
func (l *link) tell(ctx context.Context, data []byte) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), notifyTimeout)
	defer cancel()
	if err := l.wire.send(ctx, data, &exchange{}); err != nil {
		l.client.log.Debug("mcp message not delivered", "error", plain(err))
	}
}

// spawn runs f in a goroutine, and returns false if the link has ended. Before that, the
// reader keeps client.work from reaching zero.
func (l *link) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return false
	}
	l.client.work.Go(f)
	return true
}

// await makes a pending until take. It returns false if the link has ended.
func (l *link) await(a *awaited) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return false
	}
	l.pending[canonicalID(a.id)] = a
	return true
}

// take returns the pending request with the id, or nil, and removes it. An error without an id
// belongs to the only pending request, if there is one.
func (l *link) take(id json.RawMessage) *awaited {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.pending[canonicalID(id)]
	if !present(id) && len(l.pending) == 1 {
		for _, a = range l.pending {
			break
		}
	}
	if a != nil {
		delete(l.pending, canonicalID(a.id))
		close(a.over)
	}
	return a
}

// end ends the link and fails its pending requests with why. Later calls do nothing.
func (l *link) end(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return
	}
	l.ended = why
	l.client.work.Go(l.wire.close) // the reader still runs, so client.work is not zero
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

// read reads the server's messages until the wire ends.
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

// why returns the reason for which the link has ended; nil = it has not.
func (l *link) why() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// receive handles one message. The only error is errFlood.
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

// settle stores the answer f in the exchange of a, and gives the SDK a small message.
func (l *link) settle(a *awaited, f frame) {
	if !f.answers(a.id) {
		l.deliver(a.fail(fmt.Errorf("%w: it has neither result nor error", errMalformed)))
		return
	}
	l.deliver(a.settle(f))
}

// deliver gives the SDK a message that was encoded here.
func (l *link) deliver(data []byte) {
	m, err := jsonrpc.DecodeMessage(data)
	if err != nil {
		l.end(fmt.Errorf("%w: %w", errMalformed, err))
		return
	}
	select {
	case l.incoming <- m:
	case <-l.closed:
	}
}

// reply answers a request of the server, unless too many are in progress.
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

// replyTo returns the answer to a request of the server. The client has announced no
// capabilities. A server that asks for roots nevertheless gets an empty list.
func replyTo(f frame) []byte {
	reply := map[string]any{"jsonrpc": "2.0", "id": f.ID}
	switch *f.Method {
	case "ping":
		reply["result"] = struct{}{}
	case "roots/list":
		reply["result"] = map[string]any{"roots": []string{}}
	default:
		reply["error"] = map[string]any{"code": codeMethodNotFound, "message": "method not found"}
	}
	return encode(reply)
}

// handshaken closes a link whose handshake failed with err, and returns the outcome. If the
// link ended by itself, the outcome has that reason instead of the SDK's.
func (l *link) handshaken(ctx context.Context, x *exchange, err error) outcome {
	why := l.why()
	_ = l.Close()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	o := x.handshaken(err)
	if o.rpc == nil && why != nil && !errors.Is(why, errSessionLost) {
		o.err = why
	}
	return o
}

// linkEnds removes the session of a link that ended by itself. It must be called before the
// pending requests fail, so that their next attempt gets a new session.
func (c *Client) linkEnds(l *link, why error) {
	var exit *exitError
	if errors.As(why, &exit) {
		c.log.Warn("mcp server process ended", "status", exit.status, "stderr", exit.said)
	} else {
		c.log.Info("mcp session ended", "error", plain(why))
	}
	c.mu.Lock()
	if len(c.server.Command) > 0 {
		c.starts.ended(time.Now())
	}
	s := c.current
	c.mu.Unlock()
	if s != nil && s.link == l {
		c.noteFailure(c.describe(c.life, outcome{err: why, sent: true}))
		c.replace(s)
	}
}
