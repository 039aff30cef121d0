package httpd

import (
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// inFlight counts the requests that are under way; health checks do not count.
// The zero value is ready to use.
type inFlight struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // nil until stop; closed when no request is under way
}

// enter counts a request; false after stop. Each request that entered must leave.
func (f *inFlight) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.idle != nil {
		return false
	}
	f.n++
	return true
}

func (f *inFlight) leave() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n--
	if f.idle != nil && f.n == 0 {
		close(f.idle)
	}
}

// stop lets no more requests enter. The channel is closed when those that have
// entered have left. It is called once.
func (f *inFlight) stop() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle = make(chan struct{})
	if f.n == 0 {
		close(f.idle)
	}
	return f.idle
}

func (f *inFlight) stopping() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.idle != nil
}

// stopRetry is how long a client is asked to wait that comes while the gateway
// stops: its next process, or another one, may be there by then.
const stopRetry = 5 * time.Second

func stoppingError() error {
	f := fault.New(fault.Unavailable, "stopping", "the gateway is stopping and accepts no more requests; send the request again")
	f.RetryAfter = stopRetry
	return f
}
