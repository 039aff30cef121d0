package run

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// route asks the router for the order of the round's targets, and appends it.
func (m *modelCaller) route(a loop.Route) error {
	body := loop.Routed{Round: a.Round, Attempt: a.Attempt, Order: a.Left}
	if m.router != nil {
		ask := m.ask()
		ask.Left = a.Left
		if a.Last >= 0 {
			ask.Last = a.Last
		}
		chosen := m.router.Order(ask)
		body.Order, body.Skipped = chosen.Order, chosen.Skipped
	}
	for _, s := range body.Skipped {
		t := m.run.req.Targets[s.Target]
		m.run.log.Debug("a target is not tried", "provider", t.Provider, "model", t.Model, "reason", s.Reason)
	}
	return m.run.append(nil, body)
}

// ask returns the question of the run to the router, without what concerns one round.
func (m *modelCaller) ask() route.Ask {
	req := m.run.req
	a := route.Ask{Model: req.Model, Last: -1}
	for _, t := range req.Targets {
		a.Targets = append(a.Targets, t.Target)
	}
	if len(a.Targets) == 1 {
		return a
	}
	a.Last = slices.IndexFunc(a.Targets, func(t loop.Target) bool {
		return t.Provider == req.lastTarget.Provider && t.Model == req.lastTarget.Model
	})
	if m.conversation == "" {
		m.conversation = req.Org + " " + req.conversationKey(m.run.events.Items("input"))
	}
	a.Key = m.conversation
	return a
}

// conversationKey identifies the conversation of the request, so that its requests get the same
// target: the session, or the key that the caller gives for the provider's prompt cache, or
// what the prompts of a conversation have in common, which ends with the first message of the user.
func (r *Request) conversationKey(items []item.Item) string {
	const cacheKey = "prompt_cache_key"
	switch {
	case r.Affinity != "":
		return r.Affinity
	case r.Session != "":
		return "session " + r.Session
	}
	for _, p := range r.Params {
		if p.Name == cacheKey && len(p.Value) > 2 { // neither null nor empty
			return cacheKey + " " + string(p.Value)
		}
	}
	h := sha256.New()
	for _, it := range items {
		fmt.Fprintf(h, "%s %s\n", it.Kind, it.Role)
		for _, p := range it.Parts {
			fmt.Fprintf(h, "%s %s%s%s\n", p.Kind, p.Text, p.URL, p.Data)
		}
		if it.Kind == item.Message && it.Role == item.User {
			break
		}
	}
	return "prefix " + hex.EncodeToString(h.Sum(nil))
}

// answeredBy tells the router how a target has answered a call that ended with err. A caller
// who leaves and a request that is wrong say nothing about the target.
func (m *modelCaller) answeredBy(target int, err error) {
	if m.router == nil {
		return
	}
	outcome := route.Answered
	var failure *model.Error
	switch {
	case err == nil:
	case m.run.ctx.Err() == nil && errors.As(err, &failure) && (failure.Class == model.Transient || failure.Class == model.Target):
		outcome = route.Failed
	default:
		outcome = route.NoVerdict
	}
	m.router.Report(m.ask(), target, outcome, m.timing.toFirst())
}

// lastTarget returns the target that has answered last in the run; zero = none has.
func lastTarget(state *loop.State) event.Target {
	if state.Turn == nil {
		return event.Target{}
	}
	i := state.Attempt.Target
	if i < 0 || i >= len(state.Accepted.Targets) {
		return event.Target{}
	}
	t := state.Accepted.Targets[i]
	return event.Target{Provider: t.Provider, Model: t.Model}
}
