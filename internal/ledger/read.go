package ledger

import (
	"errors"
	"io"

	"github.com/turnpike-gateway/turnpike/tool"
)

const (
	firstRead  = 4 << 10
	secondRead = 128 << 10 // for what was announced: most bodies are read without another copy
	beyond     = 512       // so that the end of a reader of the announced size is seen without growing
	steep      = 1 << 20   // up to here a buffer becomes four times as large, then twice
)

// ReadAll reads r to its end. The buffer grows with what arrives, whatever size
// was announced (negative = unknown), and every growth is charged to c before it
// is allocated; a nil c counts nothing. With a nil error, cap of the result stays
// charged; otherwise nothing does. An error of c is returned as it is.
func ReadAll(r io.Reader, size int64, c tool.Memory) ([]byte, error) {
	if c == nil {
		c = (*Part)(nil)
	}
	next := firstRead + beyond
	if 0 <= size && size < firstRead {
		next = int(size) + beyond
	}
	if err := c.Charge(next); err != nil {
		return nil, err
	}
	data := make([]byte, 0, next)
	for {
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == nil && len(data) == cap(data) {
			data, err = grow(data, size, c)
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

// grow returns data with room for more.
func grow(data []byte, size int64, c tool.Memory) ([]byte, error) {
	old := cap(data)
	next := 2 * old
	if next <= steep {
		next *= 2
	}
	if all := size + beyond; int64(old) < all && all < max(int64(next), secondRead+beyond) {
		next = int(all)
	} else if old < secondRead && int64(old) < all {
		next = secondRead + beyond
	}
	if err := c.Charge(next); err != nil {
		return data, err
	}
	grown := make([]byte, len(data), next)
	copy(grown, data)
	c.Release(old)
	return grown, nil
}
