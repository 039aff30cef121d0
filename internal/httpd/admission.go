package httpd

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/ratelimit"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface/admin"
	"github.com/turnpike-gateway/turnpike/internal/surface/chat"
)

// withinRate takes one request from the limits of the key and, where it is one
// to the model API, of the org, and says in the header how much is left. Those
// who manage the org are not kept out by those who use it.
func (a *API) withinRate(w http.ResponseWriter, r *http.Request, caller run.Caller, toModel bool) error {
	ask := ratelimit.Ask{Org: caller.Org.ID, Key: caller.Principal.ID, OfKey: caller.Principal.Rate}
	if toModel {
		ask.OfOrg = caller.Org.Runtime.Rate
	}
	v := a.rates.Take(r.Context(), ask)
	if v.Scope == "" {
		return nil
	}
	h := w.Header()
	h.Set("X-Ratelimit-Limit-Requests", strconv.Itoa(v.Limit.AtOnce()))
	h.Set("X-Ratelimit-Remaining-Requests", strconv.Itoa(v.Remaining))
	h.Set("X-Ratelimit-Reset-Requests", v.Reset.Round(time.Millisecond).String())
	if v.Allowed {
		return nil
	}
	a.calm.wait(r.Context(), caller.Org.ID)
	refused := fault.New(fault.Limited, "rate_limit_exceeded", "the %s has used up its limit of %d requests in a minute (%d at once); try again after the time that Retry-After says",
		v.Scope, v.Limit.PerMinute, v.Limit.AtOnce())
	refused.RetryAfter = v.RetryAfter
	return refused
}

// unladen lets a request for a model through where there is room for it. It is
// in no run yet: one that was accepted is never given up for another.
func (a *API) unladen(serve admin.Endpoint) admin.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller run.Caller) {
		if err := a.room(caller.Org.ID); err != nil {
			unread(w, r)
			chat.WriteError(w, err)
			return
		}
		defer a.crowd.leave(caller.Org.ID)
		serve(w, r, caller)
	}
}

// room takes a place for a request of the org, or says why there is none.
func (a *API) room(org string) error {
	if err := a.o.Refuse(); err != nil {
		return err
	}
	why := a.o.Overload()
	if why == "" && a.crowd.enter(org) {
		return nil
	}
	if why == "" {
		why = "too many requests are under way (max_requests)"
	}
	a.reportOverload(why, org)
	full := fault.New(fault.Unavailable, "overloaded", "the gateway has more to do than it can: %s; nothing was done, try again later", why)
	full.RetryAfter = time.Duration(1+rand.IntN(5)) * time.Second //nolint:gosec // so that not everybody comes back at once
	return full
}

// reportOverload says so to the operator, once in a minute.
func (a *API) reportOverload(why, org string) {
	now := time.Now()
	last := a.reported.Load()
	if a.o.Log == nil || last != nil && now.Sub(*last) < time.Minute || !a.reported.CompareAndSwap(last, &now) {
		return
	}
	a.o.Log.Warn("requests are refused: the gateway is overloaded", "why", why, "org", org)
}

// admission is the state of who is let in.
type admission struct {
	rates    *ratelimit.Limiter
	crowd    *crowd
	calm     *calm
	reported atomic.Pointer[time.Time] // nil = never
}

func newAdmission(most int) admission {
	return admission{rates: ratelimit.New(), crowd: &crowd{most: most, of: map[string]int{}}, calm: newCalm()}
}
