package memory

import (
	"time"

	"github.com/turnpike-gateway/turnpike/internal/run"
)

// submitKeys maps idempotency keys to runs. The zero value is empty. The owner's
// mutex guards it.
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

// find returns the run of the key, or nil if the key is unknown or expired.
func (k *submitKeys) find(orgID string, key run.SubmitKey, now time.Time) *run.Submitted {
	s, ok := k.byKey[submitKey{orgID, key.Principal, key.Key}]
	if !ok || s.expired(now) {
		return nil
	}
	found := s.Submitted
	return &found
}

func (s *submitted) expired(now time.Time) bool { return now.Sub(s.at) >= run.SubmitKeyTTL }

// add maps the key to the run. It first drops expired keys, and the oldest until one
// more fits.
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
