package wire

import (
	"bytes"
	"io"
	"slices"
	"sync"
)

// sentBody is a request body that releases the caller's bytes when the answer
// begins. If a server answers before it has read everything, the transport
// continues to read in the background: it then reads a copy of the rest.
type sentBody struct {
	mu   sync.Mutex
	rest [][]byte
}

// newBody returns a body of the parts.
func newBody(parts [][]byte) *sentBody { return &sentBody{rest: slices.Clone(parts)} }

func (b *sentBody) Read(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.rest) > 0 && n < len(p) {
		part := b.rest[0]
		copied := copy(p[n:], part)
		n += copied
		if b.rest[0] = part[copied:]; copied == len(part) {
			b.rest = b.rest[1:]
		}
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

func (b *sentBody) Close() error {
	b.drop()
	return nil
}

// drop releases the rest.
func (b *sentBody) drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rest = nil
}

// detach copies the rest.
func (b *sentBody) detach() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.rest) > 0 {
		b.rest = [][]byte{bytes.Join(b.rest, nil)}
	}
}
