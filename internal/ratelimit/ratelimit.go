// Package ratelimit says whether one more request is within the limits of its
// key and of its org.
//
//	Ask{org, key, their limits} ──► Limiter ──► Verdict{allowed? which limit, how much is left, when to come back}
//	                                   └ a bucket for each limit of which something was taken
//
// The limits come with each question, so a change of theirs holds for the next
// one. What was taken is kept in memory and is gone after a restart.
package ratelimit

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Scope says whose limit it is.
type Scope string

// The scopes.
const (
	Org Scope = "org"
	Key Scope = "key"
)

// Ask is a wish to take N requests from the limits of an org and of one of its
// keys. A limit that is none is not asked.
type Ask struct {
	Org, Key     string // ids
	OfOrg, OfKey org.Rate
	N            int // 0 = 1
}

// Verdict is the answer to an Ask. Where both limits would say no, it speaks of
// the one that says so for longer; where neither does, of the one of which less
// is left. The zero Scope is that of who has no limit.
type Verdict struct {
	Allowed    bool
	Scope      Scope
	Limit      org.Rate
	Remaining  int           // requests that could be made at once, now
	Reset      time.Duration // until all of the limit is there again, if nothing else is taken
	RetryAfter time.Duration // until as many will be allowed, if nothing else is taken; 0 = Allowed
}

// Limiter keeps what was taken. It is safe for concurrent use, and one org does
// not wait for another, but for those few that share a shard for a moment.
type Limiter struct {
	began  time.Time
	seed   maphash.Seed
	shards [shards]shard
}

const shards = 32

// shard has all limits of its orgs, so that those of an org and a key are
// taken together under one lock.
type shard struct {
	mu      sync.Mutex
	buckets map[name]*bucket
	most    int // at so many buckets the empty ones are thrown away
}

// name is that of a bucket; without a key, it is the org's.
type name struct{ org, key string }

// New returns a Limiter of which nothing was taken.
func New() *Limiter {
	l := &Limiter{began: time.Now(), seed: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i] = shard{buckets: map[name]*bucket{}, most: fewest}
	}
	return l
}

// Take takes what is asked for from both limits, or from neither. It does not
// block. More than a limit allows at once is never allowed.
func (l *Limiter) Take(_ context.Context, ask Ask) Verdict {
	if !ask.OfOrg.IsLimit() && !ask.OfKey.IsLimit() {
		return Verdict{Allowed: true}
	}
	n := max(1, ask.N)
	s := &l.shards[maphash.String(l.seed, ask.Org)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := int64(time.Since(l.began)) // monotonic
	s.tidy(now)
	ofOrg := s.ask(Org, name{ask.Org, ""}, ask.OfOrg, n, now)
	ofKey := s.ask(Key, name{ask.Org, ask.Key}, ask.OfKey, n, now)
	if ofOrg.wait == 0 && ofKey.wait == 0 {
		ofOrg.take(n)
		ofKey.take(n)
	}
	return tighter(ofOrg, ofKey)
}

// asked is one limit that is asked. The zero asked is no limit.
type asked struct {
	scope  Scope
	limit  org.Rate
	bucket *bucket
	wait   int64 // ns; 0 = it may be taken
}

// ask looks at one limit as it is now.
func (s *shard) ask(scope Scope, of name, limit org.Rate, n int, now int64) asked {
	if !limit.IsLimit() {
		return asked{}
	}
	b, ok := s.buckets[of]
	if !ok {
		b = new(bucket)
		s.buckets[of] = b
	}
	*b = b.later(limit, now)
	return asked{scope, limit, b, b.fits(limit, n)}
}

// take takes n requests, which fit in.
func (a asked) take(n int) {
	if a.bucket != nil {
		a.bucket.level += int64(n) * request
	}
}

// tighter returns the verdict of the limit that binds.
func tighter(a, b asked) Verdict {
	switch {
	case a.bucket == nil:
		a = b
	case b.bucket == nil:
	case b.wait > a.wait, b.wait == a.wait && b.bucket.left(b.limit) < a.bucket.left(a.limit):
		a = b
	}
	return Verdict{
		Allowed: a.wait == 0, Scope: a.scope, Limit: a.limit, Remaining: a.bucket.left(a.limit),
		Reset: time.Duration(a.bucket.empties()), RetryAfter: time.Duration(a.wait),
	}
}
