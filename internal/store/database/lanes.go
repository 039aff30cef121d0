package database

import (
	"context"
	"slices"
	"sync"
	"time"
)

// lanes perform the writes of each org in the order in which they were queued, in one transaction after the other, and
// those of several orgs at the same time. The writes of an org that wait become one transaction; it waits for no others.
type lanes struct {
	ready chan *lane // lanes with writes of which none is being performed; as large as the queue, so that it never blocks

	mu    sync.Mutex // guards the fields below
	byOrg map[string]*lane
}

// lane is the queue of an org. It exists while it has writes.
type lane struct {
	org    string
	queued []*write  // not being performed
	since  time.Time // since when the oldest write waits that has no result
}

func newLanes() *lanes { return &lanes{ready: make(chan *lane, maxQueue), byOrg: map[string]*lane{}} }

// add queues a write. The caller holds one of the writer's slots for it.
func (l *lanes) add(one *write) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, ok := l.byOrg[one.org]
	if !ok {
		of = &lane{org: one.org, since: one.since}
		l.byOrg[one.org] = of
		l.ready <- of
	}
	of.queued = append(of.queued, one)
}

// take returns the next group of the lane.
func (l *lanes) take(of *lane) []*write {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(of.queued), maxGroup)
	group := of.queued[:n:n]
	of.queued, of.since = of.queued[n:], group[0].since
	return group
}

// done says that the group that was taken of the lane has a result.
func (l *lanes) done(of *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(of.queued) == 0 {
		delete(l.byOrg, of.org)
		return
	}
	of.since = of.queued[0].since
	l.ready <- of
}

// run performs groups on a connection until the lanes are closed and empty.
func (l *lanes) run(w *writer, t *tx) {
	for of := range l.ready {
		w.commit(t, l.take(of))
		l.done(of)
	}
}

// orgs returns the orgs with writes.
func (l *lanes) orgs() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]string, 0, len(l.byOrg))
	for orgID := range l.byOrg {
		out = append(out, orgID)
	}
	slices.Sort(out)
	return out
}

// lag returns how long the oldest write of the org waits; 0 if there is none.
func (l *lanes) lag(orgID string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of, ok := l.byOrg[orgID]; ok {
		return time.Since(of.since)
	}
	return 0
}

// inLanes performs a write for each org that all are of, with those of the org, and returns the results of all. The writes are under
// way at the same time. After an error, some of them may have been made. On a file it is one write.
func inLanes[T, R any](ctx context.Context, w *writer, all []T, orgOf func(T) string, do func(t *tx, of []T) ([]R, error)) ([]R, error) {
	var orgs []string
	byOrg := map[string][]T{}
	for _, one := range all {
		orgID := noOrg
		if w.lanes != nil {
			orgID = orgOf(one)
		}
		if byOrg[orgID] == nil {
			orgs = append(orgs, orgID)
		}
		byOrg[orgID] = append(byOrg[orgID], one)
	}
	writes, results := make([]*write, len(orgs)), make([][]R, len(orgs))
	for i, orgID := range orgs {
		writes[i] = &write{awaited: true, org: orgID, do: func(t *tx) (err error) {
			results[i], err = do(t, byOrg[orgID])
			return err
		}}
		if err := w.submit(ctx, writes[i]); err != nil {
			return nil, err
		}
	}
	for _, one := range writes {
		if err := one.wait(ctx); err != nil {
			return nil, err
		}
	}
	return slices.Concat(results...), nil
}
