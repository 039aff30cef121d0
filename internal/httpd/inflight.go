package httpd

import (
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// inFlightCounter counts the requests in progress, without health checks. The zero value
// is ready to use.
type inFlightCounter struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // nil until stop; closed when no request is in progress
}

// begin counts a request. It returns false after stop. Every successful enter
// needs one leave.
func (f *inFlightCounter) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.idle != nil {
		return false
	}
	f.n++
	return true
}

func (f *inFlightCounter) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n--
	if f.idle != nil && f.n == 0 {
		close(f.idle)
	}
}

// stop makes every later enter fail. It returns a channel that is closed when all
// requests have left. It may be called once.
func (f *inFlightCounter) stop() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle = make(chan struct{})
	if f.n == 0 {
		close(f.idle)
	}
	return f.idle
}

func (f *inFlightCounter) stopping() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.idle != nil
}

// stopRetry is the Retry-After of requests that arrive while the gateway stops:
// the time in which another process can take over.
const stopRetry = 5 * time.Second

func stoppingError() error {
	f := fault.New(fault.Unavailable, "stopping", "the gateway is stopping and accepts no new requests; send the request again")
	f.RetryAfter = stopRetry
	return f
}
