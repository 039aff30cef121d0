package httpd

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/ratelimit"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// checkRate takes one request from the rate limit of the key and, for the model
// API, also from that of the org. It writes the remaining allowance into the
// response header. A request to the management API does not count for the org,
// so that model traffic cannot lock an admin out.
func (a *API) checkRate(w http.ResponseWriter, r *http.Request, caller caller.Caller, toModel bool) error {
	ask := ratelimit.Request{Org: caller.Org.ID, Key: caller.Principal.ID, KeyRate: caller.Principal.Rate}
	if toModel {
		ask.OrgRate = caller.Org.Runtime.Rate
	}
	v := a.rates.Take(r.Context(), ask)
	if v.Scope == "" {
		return nil
	}
	h := w.Header()
	h.Set("X-Ratelimit-Limit-Requests", strconv.Itoa(v.Limit.EffectiveBurst()))
	h.Set("X-Ratelimit-Remaining-Requests", strconv.Itoa(v.Remaining))
	h.Set("X-Ratelimit-Reset-Requests", v.Reset.Round(time.Millisecond).String())
	if v.Allowed {
		return nil
	}
	a.throttle.wait(r.Context(), caller.Org.ID)
	refused := fault.New(fault.Limited, "rate_limit_exceeded", "the rate limit of the %s is used up: %d requests per minute, bursts of %d; try again after the time in Retry-After",
		v.Scope, v.Limit.PerMinute, v.Limit.EffectiveBurst())
	refused.RetryAfter = v.RetryAfter
	return refused
}

// limitInFlight calls serve only if the gateway has capacity for another model
// request. It refuses before a run starts; it never ends an accepted run.
func (a *API) limitInFlight(serve surface.Endpoint) surface.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		if err := a.acquireSlot(caller.Org.ID); err != nil {
			closeAfterResponse(w, r)
			return err
		}
		defer a.slots.release(caller.Org.ID)
		return serve(w, r, caller)
	}
}

// acquireSlot takes one place of the in-flight limit for org, or returns why it cannot.
// After success the caller must call leave.
func (a *API) acquireSlot(org string) error {
	if err := a.o.Refuse(); err != nil {
		return err
	}
	why := a.o.Overload(org)
	if why == "" && a.slots.acquire(org) {
		return nil
	}
	if why == "" {
		why = "too many requests are in progress (max_requests)"
	}
	a.reportOverload(why, org)
	full := fault.New(fault.Unavailable, "overloaded", "the gateway is overloaded: %s; the request was not processed, try again later", why)
	full.RetryAfter = time.Duration(1+rand.IntN(5)) * time.Second //nolint:gosec // spreads the retries; not a secret
	return full
}

// reportOverload logs the overload, at most once a minute.
func (a *API) reportOverload(why, org string) {
	now := time.Now()
	last := a.overloadReported.Load()
	if a.o.Log == nil || last != nil && now.Sub(*last) < time.Minute || !a.overloadReported.CompareAndSwap(last, &now) {
		return
	}
	a.o.Log.Warn("the gateway is overloaded and refuses model requests", "why", why, "org", org)
}

// admission holds the limits that a request passes before it is served.
type admission struct {
	rates            *ratelimit.Limiter
	slots            *fairSemaphore
	throttle         *refusalThrottle
	store            storeQueue
	overloadReported atomic.Pointer[time.Time] // nil = never
}

func newAdmission(o Options) admission {
	return admission{
		rates: ratelimit.New().Share(o.Living), slots: &fairSemaphore{limit: o.Limits.Requests, byOrg: map[string]int{}},
		throttle: newRefusalThrottle(), store: storeQueue{settle: o.Settle},
	}
}
