package httpd

import (
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

const (
	// maxLargeAnswers is how many large answers the clients of one key may read at a time.
	maxLargeAnswers = 16
	// largeAnswer is the size, in bytes, above which an answer is large.
	largeAnswer = 256 << 10
)

// heldAnswers counts the large answers that clients have yet to read, by key. The zero value is
// ready to use.
type heldAnswers struct {
	mu    sync.Mutex
	byKey map[principal]int // only keys that have some
}

// principal identifies a key.
type principal struct{ org, id string }

// Hold implements caller.Admission.
func (h *heldAnswers) Hold(orgID, id string, bytes int) (done func(), err error) {
	if bytes <= largeAnswer {
		return func() {}, nil
	}
	key := principal{orgID, id}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byKey[key] >= maxLargeAnswers {
		refused := fault.New(fault.Limited, "too_many_readers", "%d requests of the API key are already reading answers of more than %d KiB; read them to their end, or close them, and try again",
			maxLargeAnswers, largeAnswer>>10)
		refused.RetryAfter = time.Second
		return nil, refused
	}
	if h.byKey == nil {
		h.byKey = map[principal]int{}
	}
	h.byKey[key]++
	return sync.OnceFunc(func() { h.release(key) }), nil
}

func (h *heldAnswers) release(key principal) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byKey[key]--; h.byKey[key] == 0 {
		delete(h.byKey, key)
	}
}
