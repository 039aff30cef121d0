// Package ratelimit limits the request rate of an org and of each of its keys.
//
//	Request{org, key, rates} ──► Limiter ──► Verdict{allowed, binding limit, remaining, retry after}
//	                                └ one leaky bucket per limit in use
//
// Each request carries the current limits, so a changed limit applies immediately.
// Buckets are kept in memory only: a restart resets them. Of several replicas each admits its share of
// a limit: see [Limiter.Share].
package ratelimit

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Scope is the owner of a limit.
type Scope string

// The scopes.
const (
	Org Scope = "org"
	Key Scope = "key"
)

// Request asks to take N requests from the limits of an org and of one of its keys. A
// zero rate is no limit.
type Request struct {
	Org, Key         string // ids
	OrgRate, KeyRate org.Rate
	N                int // 0 means 1
}

// Verdict is the result of a Request. It reports the binding limit: of two limits that
// refuse, the one with the longer RetryAfter; of two that allow, the one with less
// Remaining. Scope is "" if no limit applies.
type Verdict struct {
	Allowed    bool
	Scope      Scope
	Limit      org.Rate      // the whole limit, also where the Limiter has a share of it
	Remaining  int           // requests that this process would allow now
	Reset      time.Duration // until the whole burst is available, without further requests
	RetryAfter time.Duration // until this Request would be allowed, without further requests; 0 if Allowed
}

// Limiter holds the buckets. It is safe for concurrent use. Orgs are spread over
// shards with one lock each, so few of them ever contend.
type Limiter struct {
	now    func() time.Time
	living func() int
	began  time.Time
	seed   maphash.Seed
	shards [shards]shard
}

const shards = 32

// shard holds all buckets of its orgs. An org and its keys are in one shard, so that
// both limits of a request are taken under one lock.
type shard struct {
	mu       sync.Mutex
	buckets  map[bucketKey]*bucket
	removeAt int // number of buckets at which empty ones are removed
}

// bucketKey identifies a bucket. key is "" for the limit of the org itself.
type bucketKey struct{ org, key string }

// New returns a Limiter with no buckets.
func New() *Limiter { return NewWithClock(time.Now) }

// NewWithClock returns a Limiter with no buckets and a clock, which must not go back.
func NewWithClock(now func() time.Time) *Limiter {
	l := &Limiter{now: now, living: func() int { return 1 }, began: now(), seed: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i] = shard{buckets: map[bucketKey]*bucket{}, removeAt: minRemoveAt}
	}
	return l
}

// Share divides every limit by the number of living replicas, which living returns, from now on. It is
// called before the first Take, and returns the Limiter. Nil = this process has the whole limit.
func (l *Limiter) Share(living func() int) *Limiter {
	if living != nil {
		l.living = living
	}
	return l
}

// Take takes the request from both limits, or from neither. It does not block. It
// never allows more than the burst of a limit at once.
func (l *Limiter) Take(_ context.Context, req Request) Verdict {
	if !req.OrgRate.IsLimit() && !req.KeyRate.IsLimit() {
		return Verdict{Allowed: true}
	}
	n := max(1, req.N)
	s := &l.shards[maphash.String(l.seed, req.Org)%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	now := int64(l.now().Sub(l.began)) // monotonic
	s.removeEmpty(now)
	living := max(1, l.living())
	ofOrg := s.check(Org, bucketKey{req.Org, ""}, share{req.OrgRate, living}, n, now)
	ofKey := s.check(Key, bucketKey{req.Org, req.Key}, share{req.KeyRate, living}, n, now)
	if ofOrg.wait == 0 && ofKey.wait == 0 {
		ofOrg.take(n)
		ofKey.take(n)
	}
	return binding(ofOrg, ofKey)
}

// check is the state of one limit for one request. The zero check is no limit.
type check struct {
	scope  Scope
	limit  share
	bucket *bucket
	wait   int64 // nanoseconds until the request fits; 0 = it fits now
}

// check returns the state of one limit at the time now. mu is held.
func (s *shard) check(scope Scope, of bucketKey, limit share, n int, now int64) check {
	if !limit.IsLimit() {
		return check{}
	}
	b, ok := s.buckets[of]
	if !ok {
		b = new(bucket)
		s.buckets[of] = b
	}
	*b = b.advanced(limit, now)
	return check{scope, limit, b, b.waitFor(limit, n)}
}

// take adds n requests to the bucket. They must fit.
func (a check) take(n int) {
	if a.bucket != nil {
		a.bucket.level += a.limit.units(n)
	}
}

// binding returns the verdict of the binding limit; see [Verdict].
func binding(a, b check) Verdict {
	switch {
	case a.bucket == nil:
		a = b
	case b.bucket == nil:
	case b.wait > a.wait, b.wait == a.wait && b.bucket.remaining(b.limit) < a.bucket.remaining(a.limit):
		a = b
	}
	return Verdict{
		Allowed: a.wait == 0, Scope: a.scope, Limit: a.limit.Rate, Remaining: a.bucket.remaining(a.limit),
		Reset: time.Duration(a.bucket.emptyAfter()), RetryAfter: time.Duration(a.wait),
	}
}

// minRemoveAt is the smallest number of buckets in a shard at which empty ones are removed.
const minRemoveAt = 64

// removeEmpty removes the empty buckets once the shard has twice as many buckets as
// were left after the last time. A shard therefore has at most twice as many buckets as
// are in use, or minRemoveAt, at constant amortized cost per request. mu is held.
func (s *shard) removeEmpty(now int64) {
	if len(s.buckets) < s.removeAt {
		return
	}
	for of, b := range s.buckets {
		if now-b.at >= b.emptyAfter() {
			delete(s.buckets, of)
		}
	}
	s.removeAt = max(minRemoveAt, 2*len(s.buckets))
}
