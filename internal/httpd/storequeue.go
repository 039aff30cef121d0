package httpd

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// How many requests of one org use the store at a time, and how many more may wait. Two
// leave half of the store's connections to the other orgs.
const (
	maxAdmitted = 2
	maxQueued   = 250
)

// storeQueue admits a few requests of each org to the store at a time, in the order in
// which they came: an org with many requests delays its own, and not those of others. The
// zero value is ready to use.
type storeQueue struct {
	heldAnswers
	settle func(context.Context) // see Options.Settle

	mu    sync.Mutex
	byOrg map[string]*queue // only orgs that have requests
}

// queue is the requests of an org.
type queue struct {
	admitted int
	waiting  []chan struct{} // in order; closed when the request is admitted
}

// Admit implements caller.Admission.
func (q *storeQueue) Admit(ctx context.Context, orgID string) (leave func(), err error) {
	admitted, err := q.enter(orgID)
	if err != nil {
		return nil, err
	}
	select {
	case <-admitted:
		return sync.OnceFunc(func() { q.leave(orgID) }), nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	o := q.byOrg[orgID]
	if i := slices.Index(o.waiting, admitted); i >= 0 {
		o.waiting = slices.Delete(o.waiting, i, i+1)
	} else { // it was admitted at the same time
		q.pass(orgID, o)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, surface.Gone(ctx.Err())
	}
	return nil, ctx.Err()
}

// Settle implements caller.Admission.
func (q *storeQueue) Settle(ctx context.Context) {
	if q.settle != nil {
		q.settle(ctx)
	}
}

// enter puts a request into the queue of the org. It returns a channel that is closed when
// the request is admitted, or an error if too many wait.
func (q *storeQueue) enter(orgID string) (chan struct{}, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := q.byOrg[orgID]
	if o == nil {
		if q.byOrg == nil {
			q.byOrg = map[string]*queue{}
		}
		o = &queue{}
		q.byOrg[orgID] = o
	}
	admitted := make(chan struct{})
	switch {
	case o.admitted < maxAdmitted:
		o.admitted++
		close(admitted)
	case len(o.waiting) < maxQueued:
		o.waiting = append(o.waiting, admitted)
	default:
		full := fault.New(fault.Limited, "too_many_requests",
			"%d management requests of the org are already waiting; try again later", maxQueued)
		full.RetryAfter = time.Second
		return nil, full
	}
	return admitted, nil
}

// leave ends the use of the store by an admitted request.
func (q *storeQueue) leave(orgID string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pass(orgID, q.byOrg[orgID])
}

// pass admits the request that has waited for the longest. It is called with mu held.
func (q *storeQueue) pass(orgID string, o *queue) {
	if len(o.waiting) > 0 {
		close(o.waiting[0])
		o.waiting = slices.Delete(o.waiting, 0, 1)
		return
	}
	if o.admitted--; o.admitted == 0 {
		delete(q.byOrg, orgID)
	}
}
