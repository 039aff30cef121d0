package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// leases is a Leases whose answers a test can change.
type leases struct {
	*memory.Journal
	claim   func() error // asked after a claim that got leases; its error is returned instead of them
	release func() error // asked before a release; nil = none fails
	renew   func() error // asked before a renewal

	mu       sync.Mutex
	renewals int
}

func (l *leases) Claim(ctx context.Context, owner string, limit int) ([]journal.Lease, error) {
	claimed, err := l.Journal.Claim(ctx, owner, limit)
	if len(claimed) > 0 && l.claim != nil {
		if err := l.claim(); err != nil {
			return nil, err
		}
	}
	return claimed, err
}

func (l *leases) Release(ctx context.Context, lease journal.Lease) error {
	if l.release != nil {
		if err := l.release(); err != nil {
			return err
		}
	}
	return l.Journal.Release(ctx, lease)
}

func (l *leases) Renew(ctx context.Context, owner string) ([]journal.Lease, error) {
	l.mu.Lock()
	l.renewals++
	l.mu.Unlock()
	if l.renew != nil {
		if err := l.renew(); err != nil {
			return nil, err
		}
	}
	return l.Journal.Renew(ctx, owner)
}

// attached repeats the request of the key "k" as a stream and returns the text
// of its last round and its end.
func (w *town) attached(t *testing.T, r *run.Runner) (string, event.Finished) {
	t.Helper()
	var d diary
	w.repeat(t, r, &d)
	return d.said()
}

func (w *town) repeat(t *testing.T, r *run.Runner, d *diary) {
	t.Helper()
	stream := w.wants("p", "k", "h")
	stream.Attach = true
	patience, cancel := context.WithTimeout(t.Context(), time.Hour) // of the test's own time
	defer cancel()
	if err := r.Run(patience, stream, d); err != nil {
		t.Fatal(err)
	}
}

// abandon starts the run of the key "k" on a gateway that renews no lease, and
// returns when its caller has left.
func (w *town) abandon(t *testing.T) {
	t.Helper()
	leaving, leave := context.WithTimeout(t.Context(), time.Second)
	defer leave()
	_ = w.gateway(t).Run(leaving, w.wants("p", "k", "h"), &diary{})
}

func hangs(ctx context.Context, _ tool.Call) (tool.Result, error) {
	<-ctx.Done()
	return tool.Result{}, context.Cause(ctx)
}

type tools = map[string]func(context.Context, tool.Call) (tool.Result, error)

// A run that takes longer than a lease stays with the gateway that works on it. // R13
func TestALeaseIsRenewedWithinItsLifetime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: script("once_slow"), tools: tools{"once_slow": func(context.Context, tool.Call) (tool.Result, error) {
			time.Sleep(5 * journal.LeaseTTL)
			return tool.Text("done"), nil
		}}}
		first, second := w.gateway(t), w.gateway(t)
		for _, r := range []*run.Runner{first, second} {
			if err := r.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		var d diary
		if err := first.Run(t.Context(), w.wants("p", "k", "h"), &d); err != nil {
			t.Fatal(err)
		}
		if text, end := d.said(); text != "done" || end.Reason != event.Complete || len(w.made()) != 1 {
			t.Errorf("%q %+v, %d calls", text, end, len(w.made()))
		}
		story, err := w.journal.Load(t.Context(), "o", d.events[0].(event.Started).RunID)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range story.Facts {
			if f.Epoch != 1 {
				t.Errorf("fact %d, %s, has epoch %d: the run was taken over", f.Seq, f.Body.Kind(), f.Epoch)
			}
		}
	})
}

// late is a Journal whose answer to a turn comes late: the lease was extended when
// the turn was stored, not when the answer came.
type late struct {
	*memory.Journal
	by time.Duration
}

func (l late) Append(ctx context.Context, lease journal.Lease, after int64, b journal.Batch) error {
	err := l.Journal.Append(ctx, lease, after, b)
	for _, f := range b.Facts {
		if f.Body.Kind() == loop.KindTurn {
			time.Sleep(l.by)
		}
	}
	return err
}

// A gateway that may have lost its lease renews it before it does anything more.
func TestAGatewayThatDoubtsItsLeaseRenewsItBeforeTheNextEffect(t *testing.T) {
	for name, renew := range map[string]func() error{"it can": nil, "it cannot": func() error { return errors.New("no") }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &leases{renew: renew}
				renewals := 0
				w := &town{think: script("once_pay"), tools: tools{"once_pay": func(context.Context, tool.Call) (tool.Result, error) {
					store.mu.Lock()
					defer store.mu.Unlock()
					renewals = store.renewals
					return tool.Text("paid"), nil
				}}}
				store.Journal = &w.journal
				r := w.gatewayWith(t, func(o *run.Options) { o.Journal, o.Leases = late{&w.journal, journal.LeaseTTL - time.Second}, store })
				var d diary
				err := r.Run(t.Context(), w.wants("p", "k", "h"), &d) // it was not started: nothing renews in the background
				if renew != nil {
					_ = refusal(t, err, "store_unavailable")
					if n := len(w.made()); n != 0 {
						t.Errorf("%d calls under a lease that may be another gateway's", n)
					}
					return
				}
				if text, _ := d.said(); err != nil || text != "paid" || renewals != 1 {
					t.Errorf("%v, %q, %d renewals before the call, want 1", err, text, renewals)
				}
			})
		})
	}
}

func TestARunIsClaimedBeforeOpenReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: script("read_a"), tools: tools{"read_a": hangs}}
		w.abandon(t)
		time.Sleep(journal.LeaseTTL)
		w.offer("read_a", func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("read"), nil })
		second := w.gateway(t)
		if err := second.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		opened := time.Now()
		if text, end := w.attached(t, second); text != "read" || end.Reason != event.Complete {
			t.Errorf("%q %+v", text, end)
		}
		if took := time.Since(opened); took != 0 { // of the test's own time, in which only a tick of the gateway passes
			t.Errorf("the run went on %v after Open had returned", took)
		}
	})
}

// A lease that nobody works under is given back at the next tick, even if giving
// it back failed once.
func TestAReleaseThatFailedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: script("read_a"), tools: tools{"read_a": hangs}}
		w.abandon(t)
		time.Sleep(journal.LeaseTTL)
		w.offer("read_a", func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("read"), nil })
		lost, failed := 0, 0
		store := &leases{Journal: &w.journal}
		second := w.gatewayWith(t, func(o *run.Options) { o.Leases = store })
		if err := second.Open(t.Context()); err != nil { // claims what is there: nothing is left
			t.Fatal(err)
		}
		_ = w.made()
		if text, _ := w.attached(t, second); text != "read" {
			t.Fatal(text)
		}

		// The answer of a claim is lost: the lease is this gateway's, and no run
		// here knows of it.
		w.tools["read_a"] = hangs
		again := w.wants("p", "k2", "h")
		leaving, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		_ = w.gateway(t).Run(leaving, again, &diary{})
		w.offer("read_a", func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("read"), nil })
		store.claim = func() error {
			if lost++; lost == 1 {
				return errors.New("the answer is lost")
			}
			return nil
		}
		store.release = func() error {
			if failed++; failed <= 2 {
				return errors.New("no")
			}
			return nil
		}
		begin := time.Now()
		for !w.done(t) {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(begin); lost != 2 || failed != 3 || took > journal.LeaseTTL+9*time.Second {
			t.Errorf("%d claims, %d releases, and the run took %v", lost, failed, took)
		}
	})
}

// broken are ports of which one fails.
type broken struct {
	journal.Archive
	journal.Journal
	journal.Conversations
}

var errSector = errors.New("the disk has a bad sector")

func (broken) Load(context.Context, string, string) (*journal.Story, error) { return nil, errSector }

func (broken) Append(context.Context, journal.Lease, int64, journal.Batch) error { return errSector }

func (broken) Save(context.Context, string, string, journal.Conversation, time.Duration, ...journal.ConversationKey) error {
	return errSector
}

// A run that stops with an error is not claimed again at once: the error may come again. The
// process gives the run back when it stops, and the next one goes on with it.
func TestARunThatFailsIsClaimedLater(t *testing.T) { // P24
	for name, breaks := range map[string]func(*run.Options){
		"it cannot be loaded":             func(o *run.Options) { o.Archive = broken{Archive: o.Archive} },
		"nothing can be appended":         func(o *run.Options) { o.Journal = broken{Journal: o.Journal} },
		"its response cannot be recorded": func(o *run.Options) { o.Conversations = broken{Conversations: o.Conversations} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &town{think: script("read_a"), tools: tools{"read_a": hangs}}
				req := w.wants("p", "k", "h")
				req.Store = &run.StoreOptions{RequestJSON: json.RawMessage(`{}`), For: time.Hour}
				leaving, leave := context.WithTimeout(t.Context(), time.Second)
				defer leave()
				_ = w.gateway(t).Run(leaving, req, &diary{}) // it renews no lease
				w.offer("read_a", func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("done"), nil })
				var claims atomic.Int64
				r := w.gatewayWith(t, func(o *run.Options) {
					breaks(o)
					o.Leases = &leases{Journal: &w.journal, claim: func() error { claims.Add(1); return nil }}
				})
				if err := r.Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute + journal.LeaseTTL)
				if n := claims.Load(); n < 8 || n > 16 {
					t.Errorf("in a minute the run was claimed %d times", n)
				}
				r.Close(t.Context(), time.Second)
				if err := w.gateway(t).Open(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
				if !w.done(t) {
					t.Error("the next process does not go on with the run")
				}
				for _, f := range w.theRun(t).Facts {
					if b, ok := f.Body.(loop.Resumed); ok && !b.HandedOver && f.Epoch > 2 {
						t.Errorf("fact %d says that an owner has died", f.Seq)
					}
				}
			})
		})
	}
}

// done reports whether every run is over.
func (w *town) done(t *testing.T) bool {
	t.Helper()
	runs, err := w.journal.Runs(t.Context(), "o", journal.Query{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range runs {
		if s.Status != journal.Done {
			return false
		}
	}
	return true
}

// What becomes free while a gateway stops is left to the next one. // O05
func TestAGatewayThatStopsClaimsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{tools: tools{"read_a": hangs}}
		w.think = func(_ context.Context, transcript []item.Item) (*model.Turn, error) {
			if strings.Contains(fmt.Sprint(transcript), "patience") {
				time.Sleep(journal.LeaseTTL + 5*time.Second)
				return says("slowly"), nil
			}
			return script("read_a")(t.Context(), transcript)
		}
		first := w.gateway(t)
		if err := first.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.abandon(t) // its lease ends while the first gateway stops
		slow := w.wants("p", "", "")
		slow.Policy.Grade, slow.Key, slow.Items = loop.Light, nil, []item.Item{item.NewText(item.User, "patience")}
		go func() { _ = first.Run(t.Context(), slow, &diary{}) }()
		synctest.Wait()
		hard, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		first.Close(hard, time.Minute)
		w.offer("read_a", func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("read"), nil })
		second := w.gateway(t)
		if err := second.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		var d diary
		w.repeat(t, second, &d)
		if text, end := d.said(); text != "read" || end.Reason != event.Complete {
			t.Errorf("%q %+v", text, end)
		}
		story, err := w.journal.Load(t.Context(), "o", d.events[0].(event.Started).RunID)
		if err != nil {
			t.Fatal(err)
		}
		if last := story.Facts[len(story.Facts)-1]; last.Epoch != 2 {
			t.Errorf("the run was claimed %d times, want once, by the second gateway", last.Epoch-1)
		}
	})
}

// The deadline of a run holds for its next owner. // L06 P01
func TestARunThatWasTakenOverHasItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: script("read_a"), tools: tools{"read_a": hangs}}
		w.abandon(t)
		time.Sleep(journal.LeaseTTL)
		second := w.gateway(t)
		if err := second.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		limit := time.Duration(w.wants("p", "k", "h").Policy.Limits.ActiveMS) * time.Millisecond
		_, end := w.attached(t, second)
		if took := time.Since(begin); end.Reason != event.Deadline || took > limit {
			t.Errorf("%+v after %v, want the deadline within %v", end, took, limit)
		}
	})
}

// A call that was cut off because the gateway stops is the next owner's to
// judge, also where it had not left yet. // P01
func TestACallThatIsCutOffByAStopIsNotRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: script("keyed_a"), tools: tools{"keyed_a": func(ctx context.Context, _ tool.Call) (tool.Result, error) {
			<-ctx.Done()
			return tool.Result{}, fmt.Errorf("no place was free: %w", tool.ErrNotSent)
		}}}
		first := w.gateway(t)
		if err := first.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- first.Run(t.Context(), w.wants("p", "k", "h"), &diary{}) }()
		synctest.Wait()
		now, cancel := context.WithCancel(t.Context())
		cancel()
		first.Close(now, 0)
		_ = refusal(t, <-ended, "run_handed_over")
		w.tools["keyed_a"] = func(context.Context, tool.Call) (tool.Result, error) { return tool.Text("done"), nil }
		second := w.gateway(t)
		if err := second.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if text, end := w.attached(t, second); text != "done" || end.Reason != event.Complete || len(w.made()) != 2 {
			t.Errorf("%q %+v, %d calls", text, end, len(w.made()))
		}
	})
}
