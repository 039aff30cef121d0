package run

import (
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/ledger"
)

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

// relayBuffer is the buffer of one relay, charged to the account. The zero value
// counts nothing and is ready; give it back with done.
type relayBuffer struct {
	account *ledger.Account
	data    *[]byte
	pool    *sync.Pool
}

// next returns what to read into, after a read of n bytes. Without room for a
// large buffer in the account it is a small one.
func (b *relayBuffer) next(n int) []byte {
	switch {
	case b.pool == nil:
		b.take(&smallBuffers)
	case n < smallRead && b.pool == &largeBuffers:
		b.done()
		b.take(&smallBuffers)
	case n >= smallRead && b.pool == &smallBuffers && b.account.Charge(largeRead) == nil:
		b.done()
		b.take(&largeBuffers)
	}
	return *b.data
}

func (b *relayBuffer) take(pool *sync.Pool) {
	b.data, b.pool = pool.Get().(*[]byte), pool
}

func (b *relayBuffer) done() {
	if b.data == nil {
		return
	}
	if b.pool == &largeBuffers {
		b.account.Release(largeRead)
	}
	b.pool.Put(b.data)
	b.data, b.pool = nil, nil
}
