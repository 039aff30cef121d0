package route

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/model"
)

const (
	// listTTL is how long the list of a provider is used, listRetry how long a
	// failure is.
	listTTL   = 5 * time.Minute
	listRetry = 30 * time.Second
	// listTimeout is the deadline of a fetch. Callers wait no longer.
	listTimeout = 5 * time.Second
	// maxListed is how many names of one provider are kept.
	maxListed = 10_000
	// maxListedName is the longest of them, in bytes.
	maxListedName = 256
	// listedBytes is about what a kept name takes, without its bytes: an entry of a
	// map, and one of the names of all providers.
	listedBytes = 208
	// maxReason is how much of an error the log gets, in bytes.
	maxReason = 300
)

// Known is a name that can be asked for.
type Known struct {
	Name     string
	Provider string    // the first that gets a request for it
	Created  time.Time // UTC; the zero time = not known
}

// ListingOptions configure a Listing. The zero value is useful.
type ListingOptions struct {
	Memory *memlimit.Limiter // nil = nothing is counted
	Log    *slog.Logger      // nil = discard
	Now    func() time.Time  // nil = time.Now
}

// Listing knows the names that can be asked for: the exact names of the
// configuration, always, and the names that providers list and their globs match.
//
//	Names ─► lists that are due ─► one fetch for each, shared ─► model.Lister
//	                                      └─► globs, bounds ─► the provider's list ─► names of all
//
// A fetch that fails keeps the provider's last list. Providers and their
// credentials are the operator's and the same for every org, and so are the
// names. A Listing is safe for concurrent use. Close it.
type Listing struct {
	router *Router
	o      ListingOptions
	base   context.Context // of fetches: they serve all callers that wait
	stop   context.CancelFunc
	tasks  sync.WaitGroup

	mu      sync.Mutex
	sources []*source
	names   []Known // replaced and never changed
}

// source is a provider that has globs and can list its models. Listing.mu guards
// what is below lister.
type source struct {
	Provider
	lister model.Lister

	fetching chan struct{} // closed at the end of the fetch that is under way; nil = none is
	due      time.Time     // of the next fetch
	list     *list         // of the last fetch that succeeded; nil = none has
	state    state
}

// state is how the last fetch of a list ended. The log gets its changes.
type state int

const (
	available state = iota // or there was no fetch yet
	unavailable
	truncated
)

// list is what a provider lists, of the names that it serves.
type list struct {
	models  map[string]model.Listed // by name
	whole   bool                    // nothing was left out for being too much
	account *memlimit.Account       // open for as long as the list is kept
}

// NewListing returns the Listing of the router's providers. It asks none of them.
func NewListing(r *Router, o ListingOptions) *Listing {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Listing{router: r, o: o}
	l.base, l.stop = context.WithCancel(context.Background())
	l.sources = sourcesOf(r.providers())
	l.names = l.merge()
	return l
}

// sourcesOf returns the providers that have globs and can list their models.
func sourcesOf(providers []Provider) (sources []*source) {
	for _, p := range providers {
		if lister, ok := p.Model.(model.Lister); ok && slices.ContainsFunc(p.Models, isGlob) {
			sources = append(sources, &source{Provider: p, lister: lister})
		}
	}
	return sources
}

// Replace makes the router and its Listing use other providers and routes from now on, for
// requests that begin afterwards. Their lists are fetched when they are needed.
func (l *Listing) Replace(providers []Provider, routes ...Route) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.router.replace(providers, routes)
	for _, s := range l.sources {
		s.keep(nil)
	}
	l.sources = nil
	if l.base.Err() == nil {
		l.sources = sourcesOf(l.router.providers())
	}
	l.names = l.merge()
}

// Close ends fetches that are under way, waits for them and releases the lists.
// Names and Find may be called afterwards: they fetch nothing.
func (l *Listing) Close() {
	l.mu.Lock()
	l.stop()
	l.mu.Unlock()
	l.tasks.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.sources {
		s.keep(nil)
	}
	l.names = l.merge()
}

// Names returns the names that can be asked for, each once: the exact names in
// configuration order, then those of each provider in alphabetical order. Callers
// share the slice and must not change it. Names waits for lists that are due, but
// not longer than ctx.
func (l *Listing) Names(ctx context.Context) []Known {
	l.refresh(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.names
}

// Find returns what Names says of a name. A name that Names does not have is found,
// too, if requests for it have a target and it is not known that no target lists
// it: one that is asked for as "provider/model", or one of a provider that is down
// or cannot list.
func (l *Listing) Find(ctx context.Context, name string) (Known, bool) {
	targets := l.router.Resolve(name)
	if targets == nil {
		return Known{}, false
	}
	l.refresh(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.IndexFunc(l.names, func(k Known) bool { return k.Name == name }); i >= 0 {
		return l.names[i], true
	}
	k := Known{Name: name, Provider: targets[0].Provider}
	possible := false
	for _, t := range targets {
		created, lists := l.lists(t)
		possible = possible || lists
		k.Created = cmp.Or(k.Created, created)
	}
	return k, possible
}

// lists reports whether the target's provider lists its model, or may. It is
// called with mu held.
func (l *Listing) lists(t Target) (created time.Time, may bool) {
	i := slices.IndexFunc(l.sources, func(s *source) bool { return s.Name == t.Provider })
	if i < 0 || l.sources[i].list == nil {
		return time.Time{}, true
	}
	s := l.sources[i]
	listed, there := s.list.models[t.Model]
	known := s.list.whole && s.globs(t.Model) && !s.Provider.lists(t.Model) // a name that the list would have
	return listed.Created, there || !known
}

// Said returns what the provider of a target says of its model in the list that it sent last. It
// asks nobody. The zero value: no list has the model.
func (l *Listing) Said(t Target) model.Listed {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.sources, func(s *source) bool { return s.Name == t.Provider })
	if i < 0 || l.sources[i].list == nil {
		return model.Listed{}
	}
	return l.sources[i].list.models[t.Model]
}

// refresh starts a fetch of each list that is due, and waits for all that are
// under way, but not longer than ctx.
func (l *Listing) refresh(ctx context.Context) {
	for _, fetching := range l.begin() {
		select {
		case <-fetching:
		case <-ctx.Done():
			return
		}
	}
}

func (l *Listing) begin() []<-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []<-chan struct{}
	now := l.o.Now()
	for _, s := range l.sources {
		if s.fetching == nil && !now.Before(s.due) && l.base.Err() == nil {
			s.fetching = make(chan struct{})
			l.tasks.Go(func() { l.fetch(s) })
		}
		if s.fetching != nil {
			all = append(all, s.fetching)
		}
	}
	return all
}

// fetch asks the provider for its list, and notes what came of it.
func (l *Listing) fetch(s *source) {
	ctx, cancel := context.WithTimeout(l.base, listTimeout)
	defer cancel()
	found, err := s.ask(ctx, l.o.Memory)
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() {
		close(s.fetching)
		s.fetching = nil
	}()
	switch {
	case l.base.Err() != nil || !slices.Contains(l.sources, s): // the gateway stops, or Replace was called
		found.release()
	case err != nil:
		found.release()
		s.due = l.o.Now().Add(listRetry)
		l.report(s, unavailable, "error", reason(err), "still_listed", s.list.size())
	default:
		s.due = l.o.Now().Add(listTTL)
		s.keep(found)
		l.names = l.merge()
		now := available
		if !found.whole {
			now = truncated
		}
		l.report(s, now, "models", found.size())
	}
}

// ask fetches the list. The caller releases it or keeps it, also beside an error.
func (s *source) ask(ctx context.Context, memory *memlimit.Limiter) (*list, error) {
	found := &list{models: map[string]model.Listed{}, whole: true, account: memory.Open("")}
	reading := found.account.Share()
	defer reading.Close()
	var refused error
	err := s.lister.List(ctx, reading, func(m model.Listed) bool {
		if _, known := found.models[m.Name]; known || !s.serves(m.Name) || !printable(m.Name) {
			return true
		}
		if found.whole = len(found.models) < maxListed; !found.whole {
			return false
		}
		if refused = found.account.Acquire(len(m.Name) + listedBytes); refused != nil {
			return false
		}
		found.models[m.Name] = m
		return true
	})
	return found, cmp.Or(err, refused)
}

// serves reports whether requests for the name, without the name of a provider
// before it, may get to the provider.
func (s *source) serves(name string) bool { return s.Provider.lists(name) || s.globs(name) }

// printable reports whether a name is short and has no hidden characters.
func printable(name string) bool {
	hidden := func(r rune) bool { return !unicode.IsPrint(r) }
	return len(name) <= maxListedName && utf8.ValidString(name) && !strings.ContainsFunc(name, hidden)
}

// keep replaces the list, and releases the one before it.
func (s *source) keep(found *list) {
	s.list.release()
	s.list = found
}

func (l *list) release() {
	if l != nil {
		l.account.Close()
	}
}

func (l *list) size() int {
	if l == nil {
		return 0
	}
	return len(l.models)
}

// merge returns the names of all providers. It is called with mu held.
func (l *Listing) merge() []Known {
	var names []Known
	at := map[string]int{}
	add := func(name, provider string) {
		at[name] = len(names)
		names = append(names, Known{Name: name, Provider: provider})
	}
	for _, name := range l.router.exact() {
		add(name, l.router.Resolve(name)[0].Provider)
	}
	for _, s := range l.sources {
		if s.list == nil {
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(s.list.models)) {
			targets := l.router.Resolve(name)
			if !slices.ContainsFunc(targets, func(t Target) bool { return t.Provider == s.Name && t.Model == name }) {
				continue // under this name, other providers get the request
			}
			if _, known := at[name]; !known {
				add(name, targets[0].Provider)
			}
			if k := &names[at[name]]; k.Created.IsZero() || k.Provider == s.Name {
				k.Created = s.list.models[name].Created
			}
		}
	}
	return names
}

// report tells the log, once, that the state of a source has changed. It is called
// with mu held.
func (l *Listing) report(s *source, now state, details ...any) {
	if s.state == now {
		return
	}
	s.state = now
	details = append([]any{"provider", s.Name}, details...)
	switch now {
	case unavailable:
		l.o.Log.Warn("model_list_unavailable", details...)
	case truncated:
		l.o.Log.Warn("model_list_cut", details...)
	default:
		l.o.Log.Info("model_list_available", details...)
	}
}

// reason is what the log says of a failure.
func reason(err error) string {
	var answer *model.Error
	switch {
	case errors.As(err, &answer) && answer.Credential:
		return "the provider refuses the gateway's credential: check its api_key"
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer within " + listTimeout.String()
	}
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}
