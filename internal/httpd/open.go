package httpd

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// openRequests are the requests in progress that may stay open for long, by org. When their key is
// revoked or their org is deleted, they end: see [API.Changed]. The zero value is ready to use.
type openRequests struct {
	mu sync.Mutex
	of map[string]map[*openRequest]struct{}
}

// openRequest is one of them.
type openRequest struct {
	principal string
	cancel    context.CancelCauseFunc
	w         http.ResponseWriter

	mu   sync.Mutex
	over bool // w must not be used any more
}

// endGrace is how long a request that is ended may take to say so to a client that does not read.
const endGrace = 500 * time.Millisecond

// add registers a request. Its context is the one that add returns; the caller must call done when
// it was answered.
func (o *openRequests) add(w http.ResponseWriter, r *http.Request, caller caller.Caller) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	one := &openRequest{principal: caller.Principal.ID, cancel: cancel, w: w}
	id := caller.Org.ID
	o.mu.Lock()
	if o.of == nil {
		o.of = map[string]map[*openRequest]struct{}{}
	}
	if o.of[id] == nil {
		o.of[id] = map[*openRequest]struct{}{}
	}
	o.of[id][one] = struct{}{}
	o.mu.Unlock()
	return ctx, func() {
		o.mu.Lock()
		if delete(o.of[id], one); len(o.of[id]) == 0 {
			delete(o.of, id)
		}
		o.mu.Unlock()
		one.mu.Lock()
		one.over = true
		one.mu.Unlock()
		cancel(nil)
	}
}

// end ends the requests of the org whose principal is gone.
func (o *openRequests) end(orgID string, gone func(principal string) (code string)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for one := range o.of[orgID] {
		if code := gone(one.principal); code != "" {
			one.cancel(run.Gone(code))
			time.AfterFunc(endGrace, one.cutOff)
		}
	}
}

// cutOff ends a write to a client that does not read.
func (r *openRequest) cutOff() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.over {
		_ = http.NewResponseController(r.w).SetWriteDeadline(time.Unix(1, 0)) // not every writer has one
	}
}

// Changed ends the open requests of the org's keys that were revoked; those of all its keys if the org
// was deleted. It is called after the change has taken effect.
func (a *API) Changed(orgID string) {
	a.open.end(orgID, func(principal string) string { return a.o.Directory.Gone(orgID, principal) })
}
