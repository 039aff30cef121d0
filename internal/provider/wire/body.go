package wire

import (
	"bytes"
	"io"
	"sync"
)

// sentBody is a request body that releases the caller's bytes when the answer
// begins. If a server answers before it has read everything, the transport
// continues to read in the background: it then reads a copy of the rest.
type sentBody struct {
	mu   sync.Mutex
	rest []byte
}

func (b *sentBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	if len(b.rest) == 0 {
		b.rest = nil
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
	b.rest = bytes.Clone(b.rest)
}
