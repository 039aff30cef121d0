package httpd

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/ratelimit"
)

const (
	// refusalDelay is how long a refusal is delayed.
	refusalDelay = time.Second
	// maxDelayed is how many refusals of an org are delayed at the same time.
	maxDelayed = 256
	// maxRefusal is the largest response, in bytes, that is delayed.
	maxRefusal = 4 << 10
)

// refusalThrottle throttles clients that ignore Retry-After. The first refusals of an org
// are sent immediately: 600 a minute, in bursts of 20. Later ones are delayed by
// refusalDelay, in which only the connection is held. Clients that honour
// Retry-After are never delayed.
type refusalThrottle struct {
	immediate *ratelimit.Limiter // counts the refusals that are sent immediately

	mu      sync.Mutex
	delayed map[string]int // delayed refusals, by org
}

func newRefusalThrottle() *refusalThrottle {
	return &refusalThrottle{immediate: ratelimit.New(), delayed: map[string]int{}}
}

// wait delays a refusal of the org if it has too many. It returns early when ctx
// ends.
func (c *refusalThrottle) wait(ctx context.Context, orgID string) {
	quick := org.Rate{PerMinute: 600, Burst: 20}
	if c.immediate.Take(ctx, ratelimit.Request{Org: orgID, OrgRate: quick}).Allowed || !c.addDelayed(orgID, 1) {
		return
	}
	defer c.addDelayed(orgID, -1)
	t := time.NewTimer(refusalDelay)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// addDelayed changes the number of delayed refusals of the org. It returns false, and
// changes nothing, if the number would exceed maxDelayed.
func (c *refusalThrottle) addDelayed(orgID string, by int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.delayed[orgID] + by
	if n > maxDelayed {
		return false
	}
	if c.delayed[orgID] = n; n == 0 {
		delete(c.delayed, orgID)
	}
	return true
}

// throttleRefusals delays the responses of serve with status 429. The response is written
// after serve has returned, so the run's resources are already released.
func (a *API) throttleRefusals(serve handler) handler {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) {
		k := &refusalBuffer{ResponseWriter: w}
		serve(k, r, caller)
		if k.buffered {
			a.throttle.wait(r.Context(), caller.Org.ID)
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write(k.body)
		}
	}
}

// refusalBuffer buffers a short response with status 429 and passes any other on.
type refusalBuffer struct {
	http.ResponseWriter
	buffered bool
	body     []byte
}

// Unwrap implements the interface that [http.ResponseController] uses.
func (k *refusalBuffer) Unwrap() http.ResponseWriter { return k.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (k *refusalBuffer) WriteHeader(status int) {
	if status == http.StatusTooManyRequests {
		if length, err := strconv.Atoi(k.Header().Get("Content-Length")); err == nil && length <= maxRefusal {
			k.buffered = true
			return
		}
	}
	k.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (k *refusalBuffer) Write(p []byte) (int, error) {
	if k.buffered {
		k.body = append(k.body, p...)
		return len(p), nil
	}
	return k.ResponseWriter.Write(p)
}
