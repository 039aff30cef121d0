package httpd

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/ratelimit"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface/admin"
)

const (
	// longestPause is how long a refusal is delayed.
	longestPause = time.Second
	// mostPaused is how many refusals of an org are delayed at the same time.
	mostPaused = 256
	// mostRefusal is the largest response, in bytes, that is delayed.
	mostRefusal = 4 << 10
)

// calm throttles clients that ignore Retry-After. The first refusals of an org
// are sent immediately: 600 a minute, in bursts of 20. Later ones are delayed by
// longestPause, in which only the connection is held. Clients that honour
// Retry-After are never delayed.
type calm struct {
	told *ratelimit.Limiter // counts the refusals that are sent immediately

	mu     sync.Mutex
	paused map[string]int // delayed refusals, by org
}

func newCalm() *calm { return &calm{told: ratelimit.New(), paused: map[string]int{}} }

// wait delays a refusal of the org if it has too many. It returns early when ctx
// ends.
func (c *calm) wait(ctx context.Context, orgID string) {
	quick := org.Rate{PerMinute: 600, Burst: 20}
	if c.told.Take(ctx, ratelimit.Request{Org: orgID, OrgRate: quick}).Allowed || !c.pause(orgID, 1) {
		return
	}
	defer c.pause(orgID, -1)
	t := time.NewTimer(longestPause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// pause changes the number of delayed refusals of the org. It returns false, and
// changes nothing, if the number would exceed mostPaused.
func (c *calm) pause(orgID string, by int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.paused[orgID] + by
	if n > mostPaused {
		return false
	}
	if c.paused[orgID] = n; n == 0 {
		delete(c.paused, orgID)
	}
	return true
}

// calmly delays the responses of serve with status 429. The response is written
// after serve has returned, so the run's resources are already released.
func (a *API) calmly(serve admin.Endpoint) admin.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller run.Caller) {
		k := &keeper{ResponseWriter: w}
		serve(k, r, caller)
		if k.refused {
			a.calm.wait(r.Context(), caller.Org.ID)
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write(k.body)
		}
	}
}

// keeper buffers a short response with status 429 and passes any other on.
type keeper struct {
	http.ResponseWriter
	refused bool
	body    []byte
}

// Unwrap implements the interface that [http.ResponseController] uses.
func (k *keeper) Unwrap() http.ResponseWriter { return k.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (k *keeper) WriteHeader(status int) {
	length, err := strconv.Atoi(k.Header().Get("Content-Length"))
	if status == http.StatusTooManyRequests && err == nil && length <= mostRefusal {
		k.refused = true
		return
	}
	k.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (k *keeper) Write(p []byte) (int, error) {
	if k.refused {
		k.body = append(k.body, p...)
		return len(p), nil
	}
	return k.ResponseWriter.Write(p)
}
