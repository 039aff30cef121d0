package outbox

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/clock"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Limits of the attempts to tell hooks of a process, which are of their own: hooks do not wait for webhooks.
const (
	perHook        = 4
	hooksOfOrg     = 16
	hooksOfProcess = 64
)

// hookClaim is the time after which a message whose owner is gone can be claimed: more than a hook may take,
// and storeTime.
const hookClaim = time.Minute

// HooksStopWithin is how long Stop waits for hooks that are being told. Those that have not answered then have
// failed: they are told once.
const HooksStopWithin = 3 * time.Second

// Teller tells hooks. Implemented by *hook.Sender.
type Teller interface {
	// Tell asks the hook of a message once, and returns when it has answered, at the latest when ctx ends. The
	// error is that of the hook, unless it wraps journal.ErrNotSent, or org.ErrNotFound: the hook, or the run,
	// is not there any more.
	Tell(ctx context.Context, m journal.HookMessage) error
}

// HookOptions are what Hooks need. All but Now and Told are required.
type HookOptions struct {
	Store  journal.HookMessages
	Teller Teller
	Log    *slog.Logger

	Now func() time.Time // wall clock; nil = clock.Wall

	// Told is called with each message whose end is stored. Nil = nobody is told.
	Told func(ctx context.Context, m journal.HookMessage)
}

// Hooks tell hooks at OnRunComplete of their runs, between Start and Stop.
//
// A message is sent once: whatever the hook answers, and if it does not. If the process dies before the outcome
// is stored, the next one sends the message again, with the same id.
type Hooks struct {
	o     HookOptions
	slots *slots
	stop  context.CancelFunc // nil = not started
	cut   context.CancelFunc // ends the attempts
	done  sync.WaitGroup
	wake  chan struct{} // has room for one: an attempt has ended

	failed bool // the store has failed, and that is logged; owned by the goroutine of run
}

// NewHooks returns Hooks.
func NewHooks(o HookOptions) *Hooks {
	if o.Now == nil {
		o.Now = clock.Wall
	}
	if o.Told == nil {
		o.Told = func(context.Context, journal.HookMessage) {}
	}
	return &Hooks{o: o, wake: make(chan struct{}, 1), slots: newSlots(perHook, hooksOfOrg, hooksOfProcess)}
}

// Start starts to tell hooks, until Stop.
func (h *Hooks) Start() {
	polls, stop := context.WithCancel(context.Background())
	attempts, cut := context.WithCancel(context.Background())
	h.stop, h.cut = stop, cut
	h.done.Go(func() { h.run(polls, attempts) })
}

// Stop starts no more attempts, waits for those in progress, at most for HooksStopWithin, and ends the rest. It may
// be called without Start, and more than once.
func (h *Hooks) Stop() {
	if h.stop == nil {
		return
	}
	h.stop()
	late := time.AfterFunc(HooksStopWithin, h.cut)
	h.done.Wait()
	late.Stop()
	h.cut()
}

func (h *Hooks) run(polls, attempts context.Context) {
	ticks := time.NewTicker(pollEvery)
	defer ticks.Stop()
	for {
		err := h.poll(polls, attempts)
		if polls.Err() != nil {
			return
		}
		if err != nil && !h.failed {
			h.o.Log.Error("hooks: the messages after runs cannot be read; the gateway retries", "error", err)
		}
		h.failed = err != nil
		select {
		case <-polls.Done():
			return
		case <-ticks.C:
		case <-h.wake:
		}
	}
}

// poll starts an attempt for each message that waits and for which there is room.
func (h *Hooks) poll(ctx, attempts context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	now := h.o.Now()
	due, err := h.o.Store.DueHooks(bounded, now)
	if err != nil || len(due) == 0 {
		return err
	}
	receivers := make([]receiver, len(due))
	for i, k := range due {
		receivers[i] = receiver{k.Org, k.Hook}
	}
	room := h.slots.reserve(receivers)
	if len(room) == 0 {
		return nil
	}
	asks := make([]journal.HookAsk, len(room))
	for i, r := range room {
		asks[i] = journal.HookAsk{HookKey: journal.HookKey{Org: r.org, Hook: r.name}, Max: r.max}
	}
	claimed, err := h.o.Store.ClaimHookMessages(bounded, now, now.Add(hookClaim), asks)
	if err != nil {
		claimed = nil
	}
	begun := make([]receiver, len(claimed))
	for i, m := range claimed {
		begun[i] = receiver{m.Org, m.Hook}
	}
	h.slots.release(room, begun)
	for _, m := range claimed {
		h.done.Go(func() { h.tell(attempts, m) })
	}
	return err
}

// tell makes the attempt and stores its outcome.
func (h *Hooks) tell(ctx context.Context, m journal.HookMessage) {
	defer func() {
		h.slots.end(receiver{m.Org, m.Hook})
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}()
	log := h.o.Log.With("org", m.Org, "run", m.RunID, "hook", m.Hook, "point", "run_complete", "type", "http", "message", m.ID)
	begin := time.Now()
	err := h.o.Teller.Tell(ctx, m)
	took := max(time.Microsecond, time.Since(begin))
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTime)
	defer cancel()
	switch {
	case errors.Is(err, journal.ErrNotSent): // it is claimed again when the claim is over
		log.Warn("hooks: a hook is not told of its run yet; the gateway retries", "error", err)
		return
	case errors.Is(err, org.ErrNotFound):
		if err := h.o.Store.DropHookMessage(bounded, m.Org, m.ID); err != nil {
			log.Error("hooks: a message for a hook that is gone is not deleted", "error", err)
			return
		}
		log.Info("hooks: a hook is not told of its run: one of them is not there any more")
		return
	}
	crash.At(crash.AfterHookTold)
	outcome := journal.HookSucceeded
	var entries []audit.Entry
	if err != nil {
		if outcome = journal.HookFailed; errors.Is(err, context.DeadlineExceeded) {
			outcome = journal.HookTimedOut
		}
	}
	m = m.End(outcome, h.o.Now(), took)
	if err != nil {
		entries = append(entries, m.Entry())
	}
	settled, failed := h.o.Store.SettleHookMessage(bounded, m, entries...)
	if failed != nil {
		log.Error("hooks: what a hook has answered after its run is not stored; it is told again", "error", failed)
		return
	}
	if !settled { // it was deleted, or given up, meanwhile
		return
	}
	h.o.Told(bounded, m)
	if err != nil {
		log.Warn("hook_failed", "error", err)
		return
	}
	log.Debug("hook_ran")
}
