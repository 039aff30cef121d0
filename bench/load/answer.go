package load

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxHeadLines bounds an answer's head; a line is bounded by the read buffer.
const maxHeadLines = 100

// head is what a reader must know of an answer's head to find its end.
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

// readBody gives the body to c and reports whether the connection may be used
// again. An end that the transfer coding did not announce is c's to judge.
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

// readBytes gives the next n bytes to c, straight from the read buffer.
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

// readRest gives all that comes until the connection is closed.
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

// broken is the fault of a connection that ended inside a body. Even when all
// bytes had come, the end was not announced, and no client can know it.
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
