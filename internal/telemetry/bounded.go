package telemetry

import "sync"

// Limits on label values that orgs and clients choose. Values beyond a limit are
// counted under other.
const (
	maxNames  = 50   // models or servers of one org
	maxSeries = 1000 // combinations of org and name
	other     = "other"
)

// pair is an org and the name of one of its models or servers. The name is empty
// for metrics of the whole org.
type pair struct{ org, name string }

// bounded holds the metrics of each pair, for a limited number of pairs.
type bounded[H any] struct {
	build func(pair) H // creates the metrics of a new pair

	mu    sync.RWMutex
	known map[pair]H
	names map[string]int // number of names, by org
}

func newBounded[H any](build func(pair) H) *bounded[H] {
	return &bounded[H]{build: build, known: map[pair]H{}, names: map[string]int{}}
}

// of returns the metrics of p, or those of other if a limit is reached. A name that
// is not trusted gets no metrics of its own, unless they exist already.
func (b *bounded[H]) of(p pair, trusted bool) H {
	b.mu.RLock()
	h, ok := b.known[p]
	b.mu.RUnlock()
	if ok {
		return h
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	p = b.fit(p, trusted)
	if h, ok = b.known[p]; !ok {
		h = b.build(p)
		b.known[p] = h
		b.names[p.org]++
	}
	return h
}

// fit returns the pair under which p is counted. It is called with mu held.
func (b *bounded[H]) fit(p pair, trusted bool) pair {
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
