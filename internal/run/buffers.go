package run

import "sync"

// The sizes of what a relay reads into. A stream that is open for minutes, and
// says a word now and then, holds a small one; what comes in bulk is read into
// large ones, which are lent.
const (
	smallRead = 1 << 10
	largeRead = 32 << 10
)

var (
	smallBuffers = sync.Pool{New: func() any { b := make([]byte, smallRead); return &b }}
	largeBuffers = sync.Pool{New: func() any { b := make([]byte, largeRead); return &b }}
)

// relayBuffer is the buffer of one relay. The zero value is ready; give it back
// with done.
type relayBuffer struct {
	data *[]byte
	pool *sync.Pool
}

// next returns what to read into, after a read of n bytes.
func (b *relayBuffer) next(n int) []byte {
	pool := &smallBuffers
	if n >= smallRead {
		pool = &largeBuffers
	}
	if pool != b.pool {
		b.done()
		b.data, b.pool = pool.Get().(*[]byte), pool
	}
	return *b.data
}

func (b *relayBuffer) done() {
	if b.data != nil {
		b.pool.Put(b.data)
		b.data, b.pool = nil, nil
	}
}
