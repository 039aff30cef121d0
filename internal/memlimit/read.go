package memlimit

import (
	"errors"
	"io"

	"github.com/turnpike-gateway/turnpike/tool"
)

const (
	firstRead     = 4 << 10
	secondRead    = 128 << 10 // second size for an announced length: most bodies need one copy
	slack         = 512       // room to read io.EOF after the announced length without growing
	fourfoldLimit = 1 << 20   // a buffer grows fourfold up to this size, and twofold above it
)

// ReadAll reads r until io.EOF. size is the announced length, or negative if unknown.
// The buffer grows with the bytes that arrive: an announced length alone allocates
// nothing. Each buffer is charged to c before it is allocated; a nil c counts nothing.
//
// On success, the capacity of the result remains charged. On an error nothing remains
// charged. Errors of r and c are returned unwrapped.
func ReadAll(r io.Reader, size int64, c tool.Memory) ([]byte, error) {
	return readAll(r, size, c, false)
}

// ReadLent is [ReadAll] with buffers from a pool. The result may be passed to [Return] when nothing refers to it any
// more; it need not be.
func ReadLent(r io.Reader, size int64, c tool.Memory) ([]byte, error) {
	return readAll(r, size, c, true)
}

func readAll(r io.Reader, size int64, c tool.Memory, lent bool) ([]byte, error) {
	if c == nil {
		c = (*Share)(nil)
	}
	next := firstRead + slack
	if 0 <= size && size < firstRead {
		next = int(size) + slack
	}
	if lent && size >= firstRead {
		next = lentSize(next)
	}
	if err := c.Acquire(next); err != nil {
		return nil, err
	}
	data := newBuffer(next)
	for {
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == nil && len(data) == cap(data) {
			data, err = grow(data, size, c, lent)
		}
		switch {
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil:
			c.Release(cap(data))
			return nil, err
		}
	}
}

// grow returns data in a larger buffer. It charges the new buffer, then releases the old
// one. On an error it returns data unchanged.
func grow(data []byte, size int64, c tool.Memory, lent bool) ([]byte, error) {
	old, second := cap(data), secondRead+slack
	if lent {
		second = secondRead // one of lentSizes
	}
	next := 2 * old
	if next <= fourfoldLimit {
		next *= 2
	}
	if all := size + slack; int64(old) < all && all < max(int64(next), int64(second)) {
		next = int(all)
	} else if old < secondRead && int64(old) < all {
		next = second
	}
	if lent {
		next = lentSize(next)
	}
	if err := c.Acquire(next); err != nil {
		return data, err
	}
	grown := append(newBuffer(next), data...)
	c.Release(old)
	if lent {
		Return(data)
	}
	return grown, nil
}
