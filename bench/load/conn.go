package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// conn is one keep-alive connection of the load.
type conn struct {
	addr string
	end  time.Time // for every read and write
	net  net.Conn  // nil until the next exchange dials
	buf  *bufio.Reader
	stop func() bool // takes back what would end net with its context
}

// do makes one exchange, on a new connection if there is none; the end of ctx
// ends it. A fault comes back as *[Fault]; any other error means that the
// target cannot be reached.
func (c *conn) do(ctx context.Context, x *Exchange) error {
	if err := c.dial(ctx); err != nil {
		return err
	}
	reusable, err := c.exchange(x, &comparer{want: x.Want.Body})
	if !reusable {
		c.close()
	}
	return err
}

// exchange sends the request and gives the answer's body to body.
func (c *conn) exchange(x *Exchange, body *comparer) (reusable bool, err error) {
	if _, err := c.net.Write(x.Request); err != nil {
		return false, fault(NoAnswer, "sending the request: %v", err)
	}
	body.tell() // the mark may be 0
	h, err := readHead(c.buf)
	if err != nil {
		return false, fault(NoAnswer, "%v", err)
	}
	if h.status != x.Want.Status {
		return false, fault(Refused, "status %d: %s", h.status, c.rest(h))
	}
	if h.contentType != x.Want.ContentType {
		return false, fault(Altered, "content type %q, want %q", h.contentType, x.Want.ContentType)
	}
	return readBody(c.buf, h, body)
}

// rest is the beginning of an unwanted answer's body, for the report.
func (c *conn) rest(h head) string {
	if h.length == 0 {
		return "no body"
	}
	if _, err := c.buf.Peek(1); err != nil {
		return "no body"
	}
	p, _ := c.buf.Peek(min(c.buf.Buffered(), 300))
	return quote(p)
}

func (c *conn) dial(ctx context.Context) error {
	if c.net != nil {
		return nil
	}
	var d net.Dialer
	n, err := d.DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return err
	}
	if err := n.SetDeadline(c.end); err != nil {
		return errors.Join(fmt.Errorf("setting the deadline: %w", err), n.Close())
	}
	c.net, c.buf = n, bufio.NewReaderSize(n, 32<<10)
	c.stop = context.AfterFunc(ctx, func() { _ = n.SetDeadline(time.Unix(1, 0)) })
	return nil
}

func (c *conn) close() {
	if c.net == nil {
		return
	}
	c.stop()
	_ = c.net.Close() // nothing is in flight that anybody waits for
	c.net, c.buf = nil, nil
}
