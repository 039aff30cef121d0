package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
)

const (
	// DefaultFollowers is how many followers a run may have.
	DefaultFollowers = 16
	// maxOrgFollowers is how many followers all runs of an org may have.
	maxOrgFollowers = 1000
	// followerBytes is what a follower is charged with beside what it collects:
	// its goroutine, its buffers and the frame that it is sending.
	followerBytes = 64 << 10
)

// followers are the repeats of requests that follow the run of their key. Each
// has a place, of which a run and an org have so many, until its answer has left
// or its client is dropped. Those that follow a run which is over share one copy
// of it.
type followers struct {
	most int // of a run

	mu      sync.Mutex
	ofRun   map[runKey]int
	ofOrg   map[string]int
	replays map[runKey]*replay
}

func newFollowers(most int) *followers {
	return &followers{most: cmp.Or(most, DefaultFollowers), ofRun: map[runKey]int{}, ofOrg: map[string]int{}, replays: map[runKey]*replay{}}
}

// enter takes a place, which leave gives back, or says why there is none.
func (f *followers) enter(key runKey) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var refused *fault.Error
	switch {
	case f.ofRun[key] >= f.most:
		refused = fault.New(fault.Limited, "too_many_followers",
			"the run of this Idempotency-Key has %d followers already (max_followers_per_run); read their answers, or try again when one of them has ended", f.most)
	case f.ofOrg[key.org] >= maxOrgFollowers:
		refused = fault.New(fault.Limited, "too_many_followers",
			"the runs of the org have %d followers already, which repeat requests with an Idempotency-Key; try again when some of them have ended", maxOrgFollowers)
	default:
		f.ofRun[key]++
		f.ofOrg[key.org]++
		return nil
	}
	refused.RetryAfter = attachRetry
	return refused
}

func (f *followers) leave(key runKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ofRun[key]--; f.ofRun[key] == 0 {
		delete(f.ofRun, key)
	}
	if f.ofOrg[key.org]--; f.ofOrg[key.org] == 0 {
		delete(f.ofOrg, key.org)
	}
}

// replay is a run that is over, read back once for all who follow it. It lives
// as long as one of them does.
type replay struct {
	feed    *feed
	account *ledger.Account
	once    sync.Once // reads it back
	readers int       // guarded by followers.mu
}

// replayed reports a run that is over to the sink, from the copy that all its
// followers share.
func (r *Runner) replayed(ctx context.Context, key runKey, sink Sink) error {
	p := r.followers.join(key, func() *replay {
		account := r.o.Ledger.Open(key.org)
		return &replay{feed: newFeed(account), account: account}
	})
	defer r.followers.part(key, p)
	p.once.Do(func() { p.feed.end(r.readBack(key, p)) })
	return p.feed.follow(ctx, sink)
}

// join returns the replay of the run, or makes one.
func (f *followers) join(key runKey, open func() *replay) *replay {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.replays[key]
	if p == nil {
		p = open()
		f.replays[key] = p
	}
	p.readers++
	return p
}

// part ends the use of a replay; the last one frees it.
func (f *followers) part(key runKey, p *replay) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.readers--; p.readers == 0 {
		delete(f.replays, key)
		p.account.Close()
	}
}

// readBack tells the whole run to the feed of p. The journal is charged before
// it is read, and released when it has been told. No follower's leaving ends it:
// others may wait for it.
func (r *Runner) readBack(key runKey, p *replay) error {
	ctx, cancel := context.WithTimeout(r.base, storeTimeout)
	defer cancel()
	head, err := r.o.Archive.Head(ctx, key.org, key.run)
	if err != nil {
		return unavailable(fmt.Errorf("run %s: %w", key.run, err))
	}
	switch head.Summary.Status {
	case Done:
	case IsAside:
		return unreadable(key.run, head.Summary.Aside.Reason)
	default:
		return inProgress()
	}
	journal := p.account.Part()
	defer journal.Close()
	if err := journal.Charge(int(head.Bytes)); err != nil {
		return err
	}
	story, err := r.o.Archive.Load(ctx, key.org, key.run)
	var bad *Unreadable
	if errors.As(err, &bad) {
		return r.repeatUnreadable(key, p.account, bad, p.feed)
	} else if err != nil {
		return unavailable(fmt.Errorf("run %s: %w", key.run, err))
	}
	return r.retold(key, p.account, story, p.feed)
}

func inProgress() error {
	busy := fault.New(fault.Conflict, "run_in_progress",
		"the run of this Idempotency-Key is under way; send the request again when it is over")
	busy.RetryAfter = attachRetry
	return busy
}

// isKept reports whether a row is one that a run keeps for going on, and that
// nothing is told from.
func isKept(ref string) bool {
	return ref == requestRef || ref == catalogRef || strings.HasPrefix(ref, "full:")
}

// weight is about how many bytes an event retains.
func weight(e event.Event) int {
	const own = 64
	switch e := e.(type) {
	case event.TextDelta:
		return own + len(e.Text)
	case event.ReasoningDelta:
		return own + len(e.Text)
	case event.RefusalDelta:
		return own + len(e.Text)
	case event.ToolStarted:
		return 2*own + len(e.Arguments)
	case event.ToolDone:
		return 2*own + len(e.Text)
	case event.Finished:
		n := 4 * own
		for _, c := range e.Calls {
			n += own + len(c.Arguments)
		}
		return n
	}
	return own
}
