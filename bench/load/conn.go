package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// conn is one keep-alive connection of the load.
type conn struct {
	addr string
	end  time.Time // for every read and write
	net  net.Conn  // nil until the next exchange dials
	buf  *bufio.Reader
	stop func() bool // unregisters the function that ends net with its context
}

// do makes one exchange and connects first if necessary. The end of ctx ends it. A
// wrong answer is a *[Fault]; any other error means that the target cannot be reached.
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
	body.notify() // the mark may be 0
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

// rest returns the beginning of the body of a wrong answer, for the message.
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
	_ = c.net.Close() // no answer is outstanding
	c.net, c.buf = nil, nil
}

// maxHeadLines bounds an answer's head; a line is bounded by the read buffer.
const maxHeadLines = 100

// head is what is needed of the head of an answer to find its end and to verify it.
type head struct {
	status      int
	contentType string
	length      int64 // of the body; -1 when the head does not say
	chunked     bool
	closing     bool // the connection ends after this answer
}

// readHead reads the head of the next final answer; 1xx answers are skipped.
func readHead(r *bufio.Reader) (head, error) {
	for {
		h, err := readOneHead(r)
		if err != nil || h.status >= 200 {
			return h, err
		}
	}
}

func readOneHead(r *bufio.Reader) (head, error) {
	line, err := readLine(r)
	if err != nil {
		return head{}, err
	}
	h := head{length: -1}
	if h.status, err = parseStatus(line); err != nil {
		return head{}, err
	}
	for range maxHeadLines {
		if line, err = readLine(r); err != nil {
			return head{}, err
		}
		if len(line) == 0 {
			return h, nil
		}
		if err := h.field(line); err != nil {
			return head{}, err
		}
	}
	return head{}, errors.New("head has too many lines")
}

func parseStatus(line []byte) (int, error) {
	rest, isHTTP := bytes.CutPrefix(line, []byte("HTTP/1.1 "))
	code, _, _ := bytes.Cut(rest, []byte(" "))
	status, err := strconv.ParseUint(string(code), 10, 16)
	if !isHTTP || err != nil || len(code) != 3 || status < 100 {
		return 0, fmt.Errorf("status line %s", excerpt(line))
	}
	return int(status), nil
}

// field notes one header line.
func (h *head) field(line []byte) error {
	name, value, found := bytes.Cut(line, []byte(":"))
	if !found {
		return fmt.Errorf("header line %s", excerpt(line))
	}
	value = bytes.TrimSpace(value)
	switch {
	case bytes.EqualFold(name, []byte("content-length")):
		n, err := strconv.ParseUint(string(value), 10, 62)
		if err != nil {
			return fmt.Errorf("content length %s", excerpt(value))
		}
		h.length = int64(n)
	case bytes.EqualFold(name, []byte("transfer-encoding")):
		if !bytes.EqualFold(value, []byte("chunked")) {
			return fmt.Errorf("transfer encoding %s", excerpt(value))
		}
		h.chunked = true
	case bytes.EqualFold(name, []byte("content-type")):
		h.contentType = mediaType(string(value))
	case bytes.EqualFold(name, []byte("connection")):
		h.closing = h.closing || bytes.EqualFold(value, []byte("close"))
	}
	return nil
}

// readBody compares the body with c and reports whether the connection may be used
// again.
func readBody(r *bufio.Reader, h head, c *comparer) (reusable bool, err error) {
	switch {
	case h.chunked:
		err = readChunks(r, c)
	case h.length >= 0:
		err = readBytes(r, h.length, c)
	default:
		return false, readRest(r, c)
	}
	if err != nil {
		return false, err
	}
	return !h.closing, c.end("the body ended")
}

func readChunks(r *bufio.Reader, c *comparer) error {
	for {
		line, err := readLine(r)
		if err != nil {
			return broken(err, c)
		}
		size, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseUint(string(bytes.TrimSpace(size)), 16, 62)
		if err != nil {
			return fault(Altered, "chunk size %s after %d bytes", excerpt(line), c.at)
		}
		if n == 0 {
			return skipTrailer(r, c)
		}
		if err := readBytes(r, int64(n), c); err != nil {
			return err
		}
		if line, err = readLine(r); err != nil {
			return broken(err, c)
		}
		if len(line) != 0 {
			return fault(Altered, "chunk after %d bytes is longer than its size: %s", c.at, excerpt(line))
		}
	}
}

func skipTrailer(r *bufio.Reader, c *comparer) error {
	for range maxHeadLines {
		line, err := readLine(r)
		if err != nil {
			return broken(err, c)
		}
		if len(line) == 0 {
			return nil
		}
	}
	return fault(Altered, "trailer without end")
}

// readBytes compares the next n bytes in the read buffer, without copying them.
func readBytes(r *bufio.Reader, n int64, c *comparer) error {
	for n > 0 {
		if _, err := r.Peek(1); err != nil {
			return broken(err, c)
		}
		p, _ := r.Peek(int(min(n, int64(r.Buffered()))))
		if err := c.take(p); err != nil {
			return err
		}
		n -= int64(len(p))
		_, _ = r.Discard(len(p)) // they are in the buffer
	}
	return nil
}

// readRest compares all bytes until the connection is closed.
func readRest(r *bufio.Reader, c *comparer) error {
	for {
		switch err := readBytes(r, 1<<40, c); {
		case errors.Is(err, io.EOF):
			return c.end("the connection was closed")
		case err != nil:
			return err
		}
	}
}

// broken is the fault of a connection that ended in a body. It is one even if all
// bytes have arrived: without the announced end a client cannot know that.
func broken(err error, c *comparer) error {
	return fmt.Errorf("%w (%w)", fault(Cut, "connection broke after %d of %d bytes", c.at, len(c.want)), err)
}

// readLine returns the next line without its end. It is valid until the next read.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}

func quote(p []byte) string { return strconv.Quote(string(p)) }

// comparer compares the body of an answer, piece by piece, with the right one.
type comparer struct {
	want []byte
	at   int // bytes that have arrived and were right

	mark    int    // reached is called when at is at least mark
	reached func() // called once; may be nil
}

// take compares the next piece.
func (c *comparer) take(p []byte) error {
	rest := c.want[c.at:]
	if len(p) <= len(rest) && bytes.Equal(p, rest[:len(p)]) {
		c.at += len(p)
		c.notify()
		return nil
	}
	n := 0
	for n < len(p) && n < len(rest) && p[n] == rest[n] {
		n++
	}
	c.at += n
	if n == len(rest) {
		return fault(Altered, "%d bytes more than the wanted %d: %s", len(p)-n, len(c.want), excerpt(p[n:]))
	}
	return fault(Altered, "at byte %d of %d: %s, want %s", c.at, len(c.want), excerpt(p[n:]), excerpt(rest[n:]))
}

func (c *comparer) notify() {
	if c.reached != nil && c.at >= c.mark {
		c.reached()
		c.reached = nil
	}
}

// end checks that nothing is missing at the end of the body; how is for the message.
func (c *comparer) end(how string) error {
	if c.at == len(c.want) {
		return nil
	}
	return fault(Cut, "%s after %d of %d bytes", how, c.at, len(c.want))
}

func excerpt(p []byte) string {
	const limit = 40
	if len(p) > limit {
		return quote(p[:limit]) + "…"
	}
	return quote(p)
}
