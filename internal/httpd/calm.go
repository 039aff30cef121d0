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
	// longestPause is how long a refusal is kept back.
	longestPause = time.Second
	// mostPaused is how many refusals of an org are kept back at a time.
	mostPaused = 256
	// mostRefusal is how many bytes a refusal may have that is kept back.
	mostRefusal = 4 << 10
)

// calm keeps those from eating the machine who are refused and come back at
// once: the first refusals of an org are told immediately, the others a moment
// later, during which the client waits on its connection and nothing else is
// held. It costs nobody anything who waits as long as he was told.
type calm struct {
	told *ratelimit.Limiter // the refusals that were told immediately

	mu     sync.Mutex
	paused map[string]int // by org
}

func newCalm() *calm { return &calm{told: ratelimit.New(), paused: map[string]int{}} }

// wait waits before the org is told that it is refused. It ends with ctx.
func (c *calm) wait(ctx context.Context, orgID string) {
	quick := org.Rate{PerMinute: 600, Burst: 20}
	if c.told.Take(ctx, ratelimit.Ask{Org: orgID, OfOrg: quick}).Allowed || !c.pause(orgID, 1) {
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

// pause changes how many refusals of the org are kept back; false if they would
// be too many.
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

// calmly returns serve, whose answer is kept back for a while if it refuses one
// request too many.
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

// keeper keeps a short answer with the status 429, and lets others through.
type keeper struct {
	http.ResponseWriter
	refused bool
	body    []byte
}

// Unwrap lets [http.ResponseController] through.
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
