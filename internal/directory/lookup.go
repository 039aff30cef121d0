package directory

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/ratelimit"
)

// How keys that the directory does not know are looked up in the store.
const (
	lookUpTimeout = time.Second
	missedFor     = 2 * time.Second // how long a key that the store does not have is not looked up again
	maxMissed     = 256             // keys; those whose time is over are removed then
)

// lookUps returns how many look-ups a process makes: guesses of keys must not load the store.
func lookUps() ratelimit.Request {
	return ratelimit.Request{OrgRate: org.Rate{PerMinute: 600, Burst: 20}}
}

// unknownKeys looks up keys in the store that another replica may have just added. It is safe for
// concurrent use.
type unknownKeys struct {
	find   func(ctx context.Context, hash [sha256.Size]byte) (orgID string, err error)
	reload func(ctx context.Context, orgID string) error

	rate   *ratelimit.Limiter
	flight singleflight.Group // by hash

	mu     sync.Mutex
	missed map[[sha256.Size]byte]time.Time // when the store did not have the key
}

// load takes the org of the key into use. It returns false if the store has no such key, if the key was looked
// up a moment ago, and if too many are looked up.
func (u *unknownKeys) load(ctx context.Context, hash [sha256.Size]byte) bool {
	if u.find == nil || u.missedLately(hash) {
		return false
	}
	found, _, _ := u.flight.Do(string(hash[:]), func() (any, error) {
		if !u.rate.Take(ctx, lookUps()).Allowed {
			return false, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookUpTimeout) // others wait for it, too
		defer cancel()
		orgID, err := u.find(ctx, hash)
		switch {
		case err == nil:
			err = u.reload(ctx, orgID)
		case errors.Is(err, org.ErrNotFound):
			u.miss(hash)
		}
		return err == nil, nil
	})
	return found.(bool)
}

func (u *unknownKeys) missedLately(hash [sha256.Size]byte) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	at, ok := u.missed[hash]
	return ok && time.Since(at) < missedFor
}

// miss notes that the key is not valid.
func (u *unknownKeys) miss(hash [sha256.Size]byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.missed) >= maxMissed {
		for other, at := range u.missed {
			if time.Since(at) >= missedFor {
				delete(u.missed, other)
			}
		}
	}
	if u.missed == nil {
		u.missed = map[[sha256.Size]byte]time.Time{}
	}
	if len(u.missed) < maxMissed {
		u.missed[hash] = time.Now()
	}
}
