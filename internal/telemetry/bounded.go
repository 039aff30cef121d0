package telemetry

import "sync"

// What a label may have of values that orgs and clients choose. Beyond it, all
// are counted as other.
const (
	maxNames  = 50   // models or servers of one org
	maxSeries = 1000 // pairs of org and name
	other     = "other"
)

// pair is an org and one of its models or servers; the name is empty where only
// the org counts.
type pair struct{ org, name string }

// bounded keeps what belongs to a pair, for a bounded number of pairs.
type bounded[H any] struct {
	build func(pair) H

	mu    sync.RWMutex
	known map[pair]H
	names map[string]int // of each org
}

func newBounded[H any](build func(pair) H) *bounded[H] {
	return &bounded[H]{build: build, known: map[pair]H{}, names: map[string]int{}}
}

// of returns what belongs to p, or to other where there is no room for it.
// Whoever is not trusted to name it gets what is there.
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

// fit returns p, or what it counts as.
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
