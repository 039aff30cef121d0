package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// MaxHandovers is the most handovers that a Handovers keeps.
const MaxHandovers = 4096

// Handovers implements run.Handovers. The zero value is ready to use.
type Handovers struct {
	Now  func() time.Time // nil = clock.Wall
	Caps org.Caps         // apply to every org; the zero value is no limit

	mu    sync.Mutex
	byID  map[handoverKey]*storedHandover
	order []*storedHandover // oldest first
}

type handoverKey struct{ org, principal, callID string }

type storedHandover struct {
	run.Handover
	keys []handoverKey
	at   time.Time
}

// Save implements run.Handovers.
func (h *Handovers) Save(_ context.Context, orgID, principal string, handover run.Handover) error {
	if len(handover.CallIDs) == 0 {
		return nil // without call ids it cannot be found
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byID == nil {
		h.byID = map[handoverKey]*storedHandover{}
	}
	now := h.now()
	h.expire(now)
	k := &storedHandover{Handover: clone(handover), at: now}
	for id := range handover.CallIDs {
		key := handoverKey{orgID, principal, id}
		if _, taken := h.byID[key]; taken {
			return fmt.Errorf("handover of call %s: %w", id, org.ErrExists)
		}
		k.keys = append(k.keys, key)
	}
	for _, key := range k.keys {
		h.byID[key] = k
	}
	h.order = append(h.order, k)
	h.applyCap(orgID)
	return nil
}

// applyCap drops the oldest handovers of the org until its cap holds.
func (h *Handovers) applyCap(orgID string) {
	excess := -h.Caps.Handovers
	for _, k := range h.order {
		if k.keys[0].org == orgID {
			excess++
		}
	}
	h.order = slices.DeleteFunc(h.order, func(k *storedHandover) bool {
		if h.Caps.Handovers == 0 || excess <= 0 || k.keys[0].org != orgID {
			return false
		}
		for _, key := range k.keys {
			delete(h.byID, key)
		}
		excess--
		return true
	})
}

// Find implements run.Handovers.
func (h *Handovers) Find(_ context.Context, orgID, principal, callID string) (*run.Handover, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k, ok := h.byID[handoverKey{orgID, principal, callID}]
	if !ok || k.expired(h.now()) {
		return nil, nil
	}
	found := clone(k.Handover)
	return &found, nil
}

func (h *Handovers) now() time.Time {
	if h.Now == nil {
		return clock.Wall()
	}
	return h.Now()
}

func (k *storedHandover) expired(now time.Time) bool { return now.Sub(k.at) >= run.HandoverTTL }

// expire drops handovers that have expired, and the oldest until one more fits.
func (h *Handovers) expire(now time.Time) {
	for len(h.order) > 0 && (len(h.order) >= MaxHandovers || h.order[0].expired(now)) {
		for _, key := range h.order[0].keys {
			delete(h.byID, key)
		}
		h.order[0] = nil
		h.order = h.order[1:]
	}
}

// clone copies the parts that the caller may modify. Items are never modified.
func clone(h run.Handover) run.Handover {
	h.Items, h.CallIDs, h.Full = slices.Clone(h.Items), maps.Clone(h.CallIDs), maps.Clone(h.Full)
	return h
}
