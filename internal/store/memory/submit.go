package memory

import (
	"time"

	"github.com/turnpike-gateway/turnpike/internal/run"
)

// submitKeys are the keys that stand for a run. The zero value is empty.
type submitKeys struct {
	byKey map[submitKey]*submitted
	order []*submitted // oldest first
}

type submitKey struct{ org, principal, key string }

type submitted struct {
	run.Submitted
	key submitKey
	at  time.Time
}

// find returns the run that the key stands for, or nil.
func (k *submitKeys) find(orgID string, key run.SubmitKey, now time.Time) *run.Submitted {
	s, ok := k.byKey[submitKey{orgID, key.Principal, key.Key}]
	if !ok || s.expired(now) {
		return nil
	}
	found := s.Submitted
	return &found
}

func (s *submitted) expired(now time.Time) bool { return now.Sub(s.at) >= run.SubmitKeyTTL }

// add makes the key stand for the run, after it has dropped what is too old or
// too much.
func (k *submitKeys) add(r runKey, key run.SubmitKey, now time.Time) {
	for len(k.order) > 0 && (len(k.order) >= MaxSubmitKeys || k.order[0].expired(now)) {
		delete(k.byKey, k.order[0].key)
		k.order[0] = nil
		k.order = k.order[1:]
	}
	if k.byKey == nil {
		k.byKey = map[submitKey]*submitted{}
	}
	s := &submitted{
		Submitted: run.Submitted{RunID: r.run, Hash: key.Hash},
		key:       submitKey{r.org, key.Principal, key.Key}, at: now,
	}
	k.byKey[s.key] = s
	k.order = append(k.order, s)
}
