package memory

import (
	"context"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/run"
)

// MaxHandovers is how many a Handovers keeps.
const MaxHandovers = 4096

// Handovers is a run.Handovers. The zero value is ready to use.
type Handovers struct {
	mu    sync.Mutex
	byID  map[handoverKey]*kept
	order []*kept // oldest first
}

type handoverKey struct{ org, principal, callID string }

type kept struct {
	run.Handover
	keys []handoverKey
	at   time.Time
}

// Save implements run.Handovers.
func (h *Handovers) Save(_ context.Context, org, principal string, handover run.Handover) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byID == nil {
		h.byID = map[handoverKey]*kept{}
	}
	h.expire()
	k := &kept{Handover: handover, at: time.Now()}
	for id := range handover.CallIDs {
		key := handoverKey{org, principal, id}
		k.keys = append(k.keys, key)
		h.byID[key] = k
	}
	h.order = append(h.order, k)
	return nil
}

// Find implements run.Handovers.
func (h *Handovers) Find(_ context.Context, org, principal, callID string) (*run.Handover, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k, ok := h.byID[handoverKey{org, principal, callID}]
	if !ok || time.Since(k.at) > run.HandoverTTL {
		return nil, nil
	}
	return &k.Handover, nil
}

// expire drops what is too old or too much.
func (h *Handovers) expire() {
	for len(h.order) > 0 && (len(h.order) >= MaxHandovers || time.Since(h.order[0].at) > run.HandoverTTL) {
		for _, key := range h.order[0].keys {
			delete(h.byID, key)
		}
		h.order[0] = nil
		h.order = h.order[1:]
	}
}
