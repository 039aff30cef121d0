package route

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// Route is a model name of the gateway's own, and the targets that serve it.
type Route struct {
	Model    string
	Strategy Strategy

	// Sticky keeps the target of a conversation, so that the provider's prompt cache works.
	// Otherwise every round of every run is ordered anew.
	Sticky bool

	Targets []WeightedTarget // in configuration order; at least one
}

// WeightedTarget is a target of a route.
type WeightedTarget struct {
	Provider, Model string
	Weight          int // share of the requests, for Weighted; 0 = 1
}

// Strategy is how a route orders its targets.
type Strategy string

// The strategies.
const (
	Fallback   Strategy = "fallback"    // in configuration order
	RoundRobin Strategy = "round_robin" // each target first, in turn
	Weighted   Strategy = "weighted"    // each target first as often as its weight says
	Latency    Strategy = "latency"     // the target that answers fastest first
)

// Ask is a question for the order of a run's targets.
type Ask struct {
	Model   string        // as the caller named it
	Targets []loop.Target // all targets of the run
	Left    []int         // those that may be tried, as indices into Targets

	// Key identifies the conversation: a sticky route tries the same target first for the same
	// key, also after a restart. "" = it is not known.
	Key string

	// Last is the target that has answered the conversation last, as index into Targets. -1 = it
	// is not known, or the Router knows it.
	Last int
}

// Choice is the order in which targets are tried.
type Choice struct {
	Order   []int // indices into Ask.Targets
	Skipped []loop.SkippedTarget

	// First is the target that a fallback list has first, if another one is the first of Order; nil = it is the first, or the
	// order is not that of a fallback list.
	First *int
}

// Order returns the order in which the targets that are left are tried. A target whose circuit
// breaker is open is left out, unless the breakers of all targets of the run are open.
func (r *Router) Order(a Ask) Choice {
	r.mu.Lock()
	defer r.mu.Unlock()
	order, sticky, fallback := r.arrange(a)
	head := order[0]
	if sticky {
		order = first(order, r.pinned(a))
	}
	now := r.now()
	allOpen := !slices.ContainsFunc(a.Targets, func(t loop.Target) bool { return r.breakers.admits(nameOf(t), now) })
	var c Choice
	for _, i := range order {
		switch {
		case !slices.Contains(a.Left, i):
		case allOpen || r.breakers.admits(nameOf(a.Targets[i]), now):
			c.Order = append(c.Order, i)
		default:
			c.Skipped = append(c.Skipped, loop.SkippedTarget{Target: i, Reason: loop.SkipOpen})
		}
	}
	if len(c.Order) > 0 {
		if fallback && c.Order[0] != head && slices.Contains(a.Left, head) {
			c.First = &head
		}
		r.breakers.tried(nameOf(a.Targets[c.Order[0]]), now)
	}
	return c
}

// arrange returns all targets of the run in the order of the strategy, and whether a
// conversation keeps its target, and whether the first one is the first of a fallback list. It is called with mu held.
func (r *Router) arrange(a Ask) (order []int, sticky, fallback bool) {
	sticky = true
	table := r.current.Load()
	names := []string{a.Model}
	if table.serves(a.Model) == nil && Names(a.Model) != nil {
		names = Names(a.Model)
	}
	for _, name := range names {
		route, ok := table.route(name)
		if !ok {
			route = Route{Model: name, Strategy: Fallback, Sticky: true, Targets: table.serves(name)}
		}
		sticky = sticky && route.Sticky
		var members []member
		for _, rt := range route.Targets {
			i := slices.IndexFunc(a.Targets, func(t loop.Target) bool { return t.Provider == rt.Provider && t.Model == rt.Model })
			if i >= 0 && !slices.Contains(order, i) {
				members = append(members, member{i, targetName{rt.Provider, rt.Model}, max(rt.Weight, 1)})
			}
		}
		if len(order) == 0 {
			fallback = route.Strategy == Fallback || len(members) == 1
		}
		order = append(order, r.arrangeRoute(route, members, a.Key)...)
	}
	for i := range a.Targets { // of a configuration that has changed since the run began
		if !slices.Contains(order, i) {
			order = append(order, i)
		}
	}
	return order, sticky, fallback
}

// member is a target of a run that a route has.
type member struct {
	index  int
	name   targetName
	weight int
}

// arrangeRoute returns the members of a route in the order of its strategy. It is called with mu
// held.
func (r *Router) arrangeRoute(route Route, members []member, key string) []int {
	if len(members) > 1 {
		switch route.Strategy {
		case RoundRobin, Weighted:
			r.spread(route, members, key)
		case Latency:
			slices.SortStableFunc(members, func(a, b member) int {
				return cmp.Compare(r.breakers.latency(a.name), r.breakers.latency(b.name))
			})
		case Fallback: // in configuration order
		}
	}
	out := make([]int, len(members))
	for i, m := range members {
		out[i] = m.index
	}
	return out
}

// spread orders the members by weighted rendezvous hashing: the key alone decides, so that
// another process has the same order, and a target that is added or removed moves only its own
// share of the conversations. Without a key, they are ordered in turn or by chance.
func (r *Router) spread(route Route, members []member, key string) {
	sticky := route.Sticky && key != ""
	if route.Strategy == RoundRobin && !sticky {
		n := int(r.turns[route.Model] % uint64(len(members)))
		r.turns[route.Model]++
		rotated := slices.Concat(members[n:], members[:n])
		copy(members, rotated)
		return
	}
	scores := make(map[int]float64, len(members))
	for _, m := range members {
		u := r.random()
		if sticky {
			u = hashed(route.Model, key, m.name)
		}
		scores[m.index] = -float64(m.weight) / math.Log(max(u, math.SmallestNonzeroFloat64))
	}
	slices.SortStableFunc(members, func(a, b member) int { return cmp.Compare(scores[b.index], scores[a.index]) })
}

// hashed returns a number in (0, 1) that depends on its arguments only.
func hashed(model, key string, t targetName) float64 {
	h := sha256.New()
	for _, text := range []string{model, key, t.provider, t.model} {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(text)))
		h.Write(n[:])
		h.Write([]byte(text))
	}
	const bits = 53 // of a float64
	return (float64(binary.BigEndian.Uint64(h.Sum(nil))>>(64-bits)) + 0.5) / (1 << bits)
}

// first returns the order with one of its elements in front; -1 = as it is.
func first(order []int, i int) []int {
	at := slices.Index(order, i)
	if at <= 0 {
		return order
	}
	return slices.Insert(slices.Delete(slices.Clone(order), at, at+1), 0, i)
}

// pinned returns the target that the conversation has, as index; -1 = none. It is called with mu
// held.
func (r *Router) pinned(a Ask) int {
	if a.Last >= 0 && a.Last < len(a.Targets) {
		return a.Last
	}
	if a.Key == "" {
		return -1
	}
	t, ok := r.pins.get(pinKey(a.Model, a.Key), r.now())
	if !ok {
		return -1
	}
	return slices.IndexFunc(a.Targets, func(target loop.Target) bool { return nameOf(target) == t })
}

// Outcome is how a target answered a model call.
type Outcome int

// The outcomes.
const (
	Answered  Outcome = iota
	Failed            // also a stream that ended in an error
	NoVerdict         // it says nothing about the target: the caller has left, or the request was wrong
)

// Report tells the router how the target at an index of a.Targets answered, and how long it
// took to the begin of the answer; 0 = not known. A target that has answered is the one that the
// conversation keeps. Report returns whether the target has failed so often that it is not to be
// tried again for now.
func (r *Router) Report(a Ask, target int, o Outcome, began time.Duration) (open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	name := nameOf(a.Targets[target])
	r.breakers.report(name, o, began, now)
	if o == Failed {
		return !r.breakers.admits(name, now)
	}
	if o != Answered || a.Key == "" || len(a.Targets) == 1 {
		return false
	}
	key := pinKey(a.Model, a.Key)
	if r.settled(a, target) {
		r.pins.remove(key) // Order finds the target without
		return false
	}
	r.pins.put(key, name, now)
	return false
}

// settled reports whether the strategy alone puts the target first for the key of the question,
// whenever it is asked. It is called with mu held.
func (r *Router) settled(a Ask, target int) bool {
	table := r.current.Load()
	if table.serves(a.Model) == nil {
		return false // a list, or no longer configured
	}
	if route, ok := table.route(a.Model); ok && (route.Strategy == Latency || !route.Sticky) {
		return !route.Sticky
	}
	order, _, _ := r.arrange(a)
	return order[0] == target
}

// serves returns the targets of a name that is no list; nil = nobody serves it.
func (t *table) serves(name string) (out []WeightedTarget) {
	if route, ok := t.route(name); ok {
		return route.Targets
	}
	for _, serves := range []func(Provider, string) bool{Provider.lists, Provider.globs} {
		for _, p := range t.providers {
			if serves(p, name) {
				out = append(out, WeightedTarget{Provider: p.Name, Model: name})
			}
		}
		if out != nil || Names(name) != nil {
			return out
		}
	}
	return nil
}

// Health is a route with the states of its targets at the moment.
type Health struct {
	Route
	States []TargetState // of Targets
}

// Routes returns the routes of the configuration.
func (r *Router) Routes() []Health {
	table := r.current.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]Health, len(table.routes))
	for i, route := range table.routes {
		out[i].Route = route
		for _, t := range route.Targets {
			out[i].States = append(out[i].States, r.breakers.state(targetName{t.Provider, t.Model}, r.now()))
		}
	}
	return out
}

// Targets returns the states of the targets of all routes, and of other targets whose breaker is
// not closed, each once.
func (r *Router) Targets() []TargetState {
	var out []TargetState
	for _, route := range r.Routes() {
		for _, s := range route.States {
			if !slices.ContainsFunc(out, func(has TargetState) bool { return has.Provider == s.Provider && has.Model == s.Model }) {
				out = append(out, s)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.breakers.notClosed(r.now()) {
		if !slices.ContainsFunc(out, func(has TargetState) bool { return has.Provider == s.Provider && has.Model == s.Model }) {
			out = append(out, s)
		}
	}
	return out
}
