package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/database/sqlitetest"
)

// hookSite is a store with messages for hooks, and what the hooks do. Time is that of the bubble.
type hookSite struct {
	*testing.T
	*database.Store
	log strings.Builder

	mu     sync.Mutex
	answer map[string]func(context.Context) error // by hook; nil = it accepts
	told   []string                               // ids of messages, as they were sent
	busy   int
	most   int
	ended  []journal.HookOutcome
}

func newHookSite(t *testing.T) *hookSite {
	store := sqlitetest.Open(t, database.Options{Now: time.Now, LeaseNow: time.Now})
	return &hookSite{T: t, Store: store, answer: map[string]func(context.Context) error{}}
}

// Tell implements Teller.
func (s *hookSite) Tell(ctx context.Context, m journal.HookMessage) error {
	s.mu.Lock()
	answer := s.answer[m.Hook]
	s.told = append(s.told, m.ID)
	s.busy++
	s.most = max(s.most, s.busy)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy--
	}()
	if answer == nil {
		return nil
	}
	return answer(ctx)
}

// ends ends a run of the org with a message for each hook.
func (s *hookSite) ends(orgID, runID string, hooks ...string) {
	s.Helper()
	b := journal.Batch{Sync: true, Facts: []loop.Fact{
		{Seq: 1, Epoch: 1, Version: loop.Version, Body: loop.Accepted{Org: orgID, RunID: runID}}, {Seq: 2, Epoch: 1, Version: loop.Version, Body: loop.Finished{Reason: event.Complete}},
	}}
	for _, h := range hooks {
		b.HookMessages = append(b.HookMessages, journal.HookMessage{ID: runID + "." + h, Org: orgID, RunID: runID, Hook: h, Outcome: journal.HookWaiting})
	}
	if err := s.Append(s.Context(), journal.Lease{Org: orgID, RunID: runID, Epoch: 1, Owner: "x"}, 0, b); err != nil {
		s.Fatal(err)
	}
}

func (s *hookSite) start(store journal.HookMessages) *Hooks {
	h := NewHooks(HookOptions{Store: store, Teller: s, Now: time.Now, Log: slog.New(slog.NewTextHandler(&s.log, nil)), Told: func(_ context.Context, m journal.HookMessage) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended = append(s.ended, m.Outcome)
	}})
	h.Start()
	return h
}

// outcomes returns what became of the messages of a run.
func (s *hookSite) outcomes(orgID, runID string) (out []string) {
	s.Helper()
	all, err := s.HookMessages(s.Context(), orgID, runID)
	if err != nil {
		s.Fatal(err)
	}
	for _, m := range all {
		out = append(out, fmt.Sprintf("%s %s", m.Hook, m.Outcome))
	}
	return out
}

// neverAnswers answers nothing until the attempt ends.
func neverAnswers(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// Each hook is told once, whatever it answers; what has failed is in the audit log and the log. // H14 H15 H16
func TestHooksAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHookSite(t)
		s.answer["broken"] = func(context.Context) error { return errors.New("it answered with the status 500") }
		s.answer["slow"] = func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			return neverAnswers(ctx)
		}
		s.answer["gone"] = func(context.Context) error { return fmt.Errorf("hook: %w", org.ErrNotFound) }
		h := s.start(s)
		s.ends("a", "r", "fine", "broken", "slow", "gone")
		time.Sleep(time.Hour)
		h.Stop()
		h.Stop()
		if got, want := s.outcomes("a", "r"), []string{"fine succeeded", "broken failed", "slow timed_out"}; !slices.Equal(got, want) {
			t.Errorf("the messages are %q, want %q", got, want)
		}
		slices.Sort(s.told)
		if want := []string{"r.broken", "r.fine", "r.gone", "r.slow"}; !slices.Equal(s.told, want) {
			t.Errorf("told were %q, want %q", s.told, want)
		}
		rows, err := s.AuditRows(t.Context(), "a", audit.Query{RunID: "r"})
		if err != nil || len(rows) != 2 || strings.Count(s.log.String(), "msg=hook_failed") != 2 || len(s.ended) != 3 {
			t.Errorf("%d audit rows, %v; %v\n%s", len(rows), err, s.ended, s.log.String())
		}
	})
}

// What could not be sent because of the gateway is sent later, and counts as nothing before. // H14
func TestAHookIsToldLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHookSite(t)
		var n atomic.Int32
		s.answer["h"] = func(context.Context) error {
			if n.Add(1) < 3 {
				return fmt.Errorf("no memory: %w", journal.ErrNotSent)
			}
			return nil
		}
		h := s.start(s)
		s.ends("a", "r", "h")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if got := s.outcomes("a", "r"); n.Load() != 1 || !slices.Equal(got, []string{"h waiting"}) {
			t.Errorf("after %d attempts: %q", n.Load(), got)
		}
		time.Sleep(5 * time.Minute)
		h.Stop()
		if got := s.outcomes("a", "r"); n.Load() != 3 || !slices.Equal(got, []string{"h succeeded"}) || len(s.ended) != 1 {
			t.Errorf("after %d attempts: %q, %v", n.Load(), got, s.ended)
		}
	})
}

// A stop waits for hooks that are being told, but not for long; they are not told again. // H14
func TestAStopWaitsForHooks(t *testing.T) {
	for name, c := range map[string]struct {
		takes time.Duration
		want  string
	}{"a hook that answers": {2 * time.Second, "h succeeded"}, "a hook that does not": {time.Hour, "h failed"}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newHookSite(t)
				s.answer["h"] = func(ctx context.Context) error {
					select {
					case <-time.After(c.takes):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				}
				h := s.start(s)
				s.ends("a", "r", "h")
				time.Sleep(1500 * time.Millisecond) // it has begun at one second
				s.ends("a", "late", "h")
				begin := time.Now()
				h.Stop()
				if took := time.Since(begin); took > HooksStopWithin {
					t.Errorf("the stop took %s", took)
				}
				if got := s.outcomes("a", "r"); !slices.Equal(got, []string{c.want}) {
					t.Errorf("%q, want %s", got, c.want)
				}
				s.answer["h"] = nil
				next := s.start(s)
				time.Sleep(time.Minute)
				next.Stop()
				if want := []string{"r.h", "late.h"}; !slices.Equal(s.told, want) {
					t.Errorf("told were %q, want %q", s.told, want)
				}
			})
		})
	}
}

// Hooks that do not answer take a bounded number of attempts, and none of those of other hooks and orgs. // H14 L10
func TestAttemptsToTellHooksAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHookSite(t)
		h := s.start(s)
		var stuck []string
		for i := range 10 {
			name := fmt.Sprint("stuck", i)
			s.answer[name] = neverAnswers
			stuck = append(stuck, name)
		}
		for o := range 10 {
			for r := range 5 {
				s.ends(fmt.Sprint("org", o), fmt.Sprint("r", o, ".", r), stuck...)
			}
		}
		time.Sleep(10 * time.Second)
		h.Stop()
		if s.most != hooksOfProcess {
			t.Errorf("%d attempts at a time, want %d", s.most, hooksOfProcess)
		}
		if h.pump.slots.all != 0 || len(h.pump.slots.busy) != 0 || len(h.pump.slots.ofOrg) != 0 {
			t.Errorf("after the end, %d attempts count as in progress", h.pump.slots.all)
		}
		again := newHookSite(t)
		again.answer["stuck"] = neverAnswers
		h = again.start(again)
		for r := range 10 {
			again.ends("a", fmt.Sprint("r", r), "stuck", "fine")
		}
		time.Sleep(10 * time.Second)
		h.Stop()
		for r := range 10 {
			if got := again.outcomes("a", fmt.Sprint("r", r)); !slices.Contains(got, "fine succeeded") {
				t.Errorf("run %d: %q", r, got)
			}
		}
	})
}

type hookStore interface{ journal.HookMessages }

// failingHooks is a store that fails.
type failingHooks struct {
	hookStore
	fails atomic.Bool
}

func (f *failingHooks) DueHooks(ctx context.Context, now time.Time) ([]journal.HookKey, error) {
	if f.fails.Load() {
		return nil, errors.New("disk I/O error")
	}
	return f.hookStore.DueHooks(ctx, now)
}

// A store that fails is logged once, and asked again.
func TestAStoreOfHookMessagesThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newHookSite(t)
		store := &failingHooks{hookStore: s}
		store.fails.Store(true)
		h := s.start(store)
		s.ends("a", "r", "h")
		time.Sleep(time.Minute)
		store.fails.Store(false)
		time.Sleep(time.Minute)
		h.Stop()
		if got := s.outcomes("a", "r"); !slices.Equal(got, []string{"h succeeded"}) || strings.Count(s.log.String(), "cannot be read") != 1 {
			t.Errorf("%q\n%s", got, s.log.String())
		}
	})
}
