package outbox

import (
	"context"
	"errors"
	"log/slog"
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
	o    HookOptions
	pump *pump[journal.HookMessage]
}

// NewHooks returns Hooks.
func NewHooks(o HookOptions) *Hooks {
	if o.Now == nil {
		o.Now = clock.Wall
	}
	if o.Told == nil {
		o.Told = func(context.Context, journal.HookMessage) {}
	}
	h := &Hooks{o: o}
	h.pump = newPump(h, newSlots(perHook, hooksOfOrg, hooksOfProcess), o.Now, HooksStopWithin, o.Log,
		"hooks: the messages after runs cannot be read; the gateway retries")
	return h
}

// Start starts to tell hooks, until Stop.
func (h *Hooks) Start() { h.pump.start() }

// Stop starts no more attempts, waits for those in progress, at most for HooksStopWithin, and ends the rest. It may
// be called without Start, and more than once.
func (h *Hooks) Stop() { h.pump.end() }

// due implements queue.
func (h *Hooks) due(ctx context.Context, now time.Time) ([]receiver, error) {
	due, err := h.o.Store.DueHooks(ctx, now)
	out := make([]receiver, len(due))
	for i, k := range due {
		out[i] = receiver{k.Org, k.Hook}
	}
	return out, err
}

// claim implements queue.
func (h *Hooks) claim(ctx context.Context, now time.Time, asks []reserved) ([]journal.HookMessage, error) {
	list := make([]journal.HookAsk, len(asks))
	for i, r := range asks {
		list[i] = journal.HookAsk{HookKey: journal.HookKey{Org: r.org, Hook: r.name}, Max: r.max}
	}
	return h.o.Store.ClaimHookMessages(ctx, now, now.Add(hookClaim), list)
}

// receiverOf implements queue.
func (h *Hooks) receiverOf(m journal.HookMessage) receiver { return receiver{m.Org, m.Hook} }

// attempt implements queue. It tells the hook of its run.
func (h *Hooks) attempt(ctx context.Context, m journal.HookMessage) {
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
