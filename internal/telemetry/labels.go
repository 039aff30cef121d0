package telemetry

import "sync"

// Limits on label values that orgs and clients choose. Values beyond a limit are
// counted under other.
const (
	maxNames  = 50   // models, each with its provider, or servers of one org
	maxSeries = 1000 // series of all orgs
	other     = "other"
)

// series is an org and the name of one of its models or servers. The name is empty
// for metrics of the whole org. The provider is one of the configuration or other,
// and empty for metrics that do not have this label.
type series struct{ org, name, provider string }

// labelLimiter holds the metrics of each series, for a limited number of series.
type labelLimiter[H any] struct {
	build func(series) H // creates the metrics of a new series

	mu    sync.RWMutex
	known map[series]H
	names map[string]int // number of names, by org
}

func newLabelLimiter[H any](build func(series) H) *labelLimiter[H] {
	return &labelLimiter[H]{build: build, known: map[series]H{}, names: map[string]int{}}
}

// get returns the metrics of p, or those of other if a limit is reached. A name that
// is not trusted gets no metrics of its own, unless they exist already.
func (b *labelLimiter[H]) get(p series, trusted bool) H {
	b.mu.RLock()
	h, ok := b.known[p]
	b.mu.RUnlock()
	if ok {
		return h
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p = b.limit(p, trusted)
	if h, ok = b.known[p]; !ok {
		h = b.build(p)
		b.known[p] = h
		b.names[p.org]++
	}
	return h
}

// limit returns the series under which p is counted. It is called with mu held.
func (b *labelLimiter[H]) limit(p series, trusted bool) series {
	if _, ok := b.known[p]; ok {
		return p
	}
	if p.name != "" && (!trusted || b.names[p.org] >= maxNames) {
		p.name = other
	}
	if _, ok := b.known[p]; !ok && len(b.known) >= maxSeries {
		p.org = other
		if p.name != "" {
			p.name = other
		}
	}
	return p
}
