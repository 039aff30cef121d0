package run_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// counted is an archive that counts what is read of it.
type counted struct {
	run.Archive
	loads atomic.Int64
}

func (c *counted) Load(ctx context.Context, org, runID string) (*run.Story, error) {
	c.loads.Add(1)
	return c.Archive.Load(ctx, org, runID)
}

// counting is a gateway with its ledger and an archive that counts.
func (w *town) counting(t *testing.T, bounds ledger.Options) (*run.Runner, *ledger.Ledger, *counted) {
	t.Helper()
	c, l, archive := catalog.New(catalog.Options{}), ledger.New(bounds), &counted{Archive: &w.journal}
	r := run.New(run.Options{
		Catalog: c, Journal: &w.journal, Handovers: &w.handovers, Leases: &w.journal, Archive: archive, Resources: w, Ledger: l,
	})
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		r.Stop(now, 0)
		c.Close()
		if l.Held() != 0 {
			t.Errorf("%d bytes are held when everything has ended", l.Held())
		}
	})
	return r, l, archive
}

// reader is a client's end: it collects the text, and takes nothing while it is
// held. The zero value takes everything.
type reader struct {
	hold chan struct{} // nil = takes at once
	text strings.Builder
}

func (r *reader) Emit(e event.Event) error {
	if r.hold != nil {
		<-r.hold
	}
	if d, ok := e.(event.TextDelta); ok {
		r.text.WriteString(d.Text)
	}
	return nil
}

// P40: all who repeat a request read one copy of its run, of which a run has so
// many; clients that do not read hold places, and nothing else.
func TestFollowersOfAFinishedRunShareOneCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := strings.Repeat("x", 1<<20)
		w := &town{think: func(context.Context, []item.Item) (*model.Turn, error) { return says(text), nil }}
		r, l, archive := w.counting(t, ledger.Options{})
		if err := r.Run(t.Context(), w.wants("p", "k", "h"), &reader{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		hold := make(chan struct{})
		var all sync.WaitGroup
		for range run.DefaultFollowers {
			all.Go(func() {
				f := &reader{hold: hold}
				if err := r.Run(t.Context(), w.wants("p", "k", "h"), f); err != nil || f.text.String() != text {
					t.Errorf("a follower reads %d bytes: %v", f.text.Len(), err)
				}
			})
		}
		synctest.Wait()
		if n := archive.loads.Load(); n != 1 {
			t.Errorf("the journal was read %d times", n)
		}
		if held := l.HeldBy("o"); held < 1<<20 || held > 4<<20 {
			t.Errorf("%d bytes are held for one copy of 1 MiB and its followers", held)
		}
		err := r.Run(t.Context(), w.wants("p", "k", "h"), &reader{})
		if f := fault.From(err); f.Code != fault.Limited || f.Reason != "too_many_followers" || f.RetryAfter == 0 {
			t.Errorf("one follower too many: %v", err)
		}
		close(hold)
		all.Wait()
		if err := r.Run(t.Context(), w.wants("p", "k", "h"), &reader{}); err != nil {
			t.Errorf("the places were not given back: %v", err)
		}
	})
}

// A client that leaves while the journal is read back takes it from nobody.
func TestAFollowerThatLeavesGivesItsPlaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		w := &town{think: func(context.Context, []item.Item) (*model.Turn, error) { <-release; return says("done"), nil }}
		r, _, _ := w.counting(t, ledger.Options{})
		go func() { _ = r.Run(t.Context(), w.wants("p", "k", "h"), &reader{}) }()
		synctest.Wait()
		for range 3 * run.DefaultFollowers {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			req := w.wants("p", "k", "h")
			req.Attach = true
			if err := r.Run(ctx, req, &reader{}); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		close(release)
		synctest.Wait()
	})
}

// P40: what a run has told stays charged while a follower reads it, also when the
// run is over and its first client is gone.
func TestAFollowerOfAFinishedRunKeepsItCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 1 << 20
		release := make(chan struct{})
		w := &town{think: func(context.Context, []item.Item) (*model.Turn, error) {
			<-release
			return says(strings.Repeat("x", size)), nil
		}}
		r, l, _ := w.counting(t, ledger.Options{})
		ctx, leave := context.WithCancel(t.Context())
		go func() { _ = r.Run(ctx, w.wants("p", "k", "h"), &reader{}) }()
		synctest.Wait()
		f := &reader{hold: make(chan struct{})}
		var following sync.WaitGroup
		following.Go(func() {
			req := w.wants("p", "k", "h")
			req.Attach = true
			if err := r.Run(t.Context(), req, f); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		leave()
		close(release)
		synctest.Wait()
		if held := l.HeldBy("o"); held < size {
			t.Errorf("%d bytes are charged while a follower has %d to read", held, size)
		}
		close(f.hold)
		following.Wait()
		synctest.Wait()
		if held := l.HeldBy("o"); held != 0 {
			t.Errorf("%d bytes stay charged when it has read them", held)
		}
	})
}

// P40: a journal that is larger than a run may retain is refused before it is
// read.
func TestAJournalThatIsTooLargeIsNotReadBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: func(context.Context, []item.Item) (*model.Turn, error) { return says(strings.Repeat("x", 1<<20)), nil }}
		large, _, _ := w.counting(t, ledger.Options{})
		if err := large.Run(t.Context(), w.wants("p", "k", "h"), &reader{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		small, _, archive := w.counting(t, ledger.Options{Run: 1 << 19})
		err := small.Run(t.Context(), w.wants("p", "k", "h"), &reader{})
		if f := fault.From(err); f.Code != fault.TooLarge || f.Reason != "run_memory_exceeded" || archive.loads.Load() != 0 {
			t.Errorf("%v, and the journal was read %d times", err, archive.loads.Load())
		}
	})
}

// P40: what a durable run has to tell is charged to it. Beyond its bound it ends,
// and says why.
func TestARunThatTellsTooMuchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: func(context.Context, []item.Item) (*model.Turn, error) { return says(strings.Repeat("x", 1<<20)), nil }}
		r, _, _ := w.counting(t, ledger.Options{Run: 1 << 19})
		end := &last{}
		if err := r.Run(t.Context(), w.wants("p", "k", "h"), end); err != nil {
			t.Fatal(err)
		}
		if end.Reason != event.Memory || end.Failure == nil || end.Failure.Code != "run_memory_exceeded" {
			t.Errorf("the run ended with %+v", end.Finished)
		}
		synctest.Wait()
	})
}

// last keeps the end of a run.
type last struct{ event.Finished }

func (l *last) Emit(e event.Event) error {
	if end, ok := e.(event.Finished); ok {
		l.Finished = end
	}
	return nil
}

// P40: a turn for which there is no memory ends the run, and is not asked for
// again.
func TestARunWhoseTurnDoesNotFitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		w := &town{think: func(context.Context, []item.Item) (*model.Turn, error) {
			asked++
			return nil, &model.Error{Class: model.Target, Err: &ledger.Refused{Bound: ledger.Org, Owner: "o"}}
		}}
		r, _, _ := w.counting(t, ledger.Options{})
		end := &last{}
		if err := r.Run(t.Context(), w.wants("p", "k", "h"), end); err != nil {
			t.Fatal(err)
		}
		if end.Reason != event.Memory || end.Failure == nil || end.Failure.Code != "org_memory_exceeded" || asked != 1 {
			t.Errorf("asked %d times, the run ended with %+v", asked, end.Finished)
		}
		synctest.Wait()
	})
}
