package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// counted is an archive that counts what is read of it.
type counted struct {
	journal.Archive
	loads atomic.Int64
	bytes atomic.Int64 // of rows
}

func (c *counted) Rows(ctx context.Context, org, runID string, refs []string, limit int) ([]json.RawMessage, error) {
	rows, err := c.Archive.Rows(ctx, org, runID, refs, limit)
	for _, row := range rows {
		c.bytes.Add(int64(len(row)))
	}
	return rows, err
}

func (c *counted) Load(ctx context.Context, org, runID string) (*journal.Story, error) {
	c.loads.Add(1)
	return c.Archive.Load(ctx, org, runID)
}

// counting is a gateway with its limiter and an archive that counts.
func (w *town) counting(t *testing.T, bounds memlimit.Options) (*run.Runner, *memlimit.Limiter, *counted) {
	t.Helper()
	c, l, archive := catalog.New(catalog.Options{}), memlimit.New(bounds), &counted{Archive: &w.journal}
	r := run.New(run.Options{
		Catalog: c, Journal: &w.journal, Conversations: &w.conversations, Leases: &w.journal, Archive: archive, Resources: w, Memory: l,
	})
	t.Cleanup(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		r.Close(now, 0)
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
	got  atomic.Int64 // bytes of text
}

func (r *reader) Emit(_ event.Position, e event.Event) error {
	if r.hold != nil {
		<-r.hold
	}
	if d, ok := e.(event.TextDelta); ok {
		r.text.WriteString(d.Text)
		r.got.Add(int64(len(d.Text)))
	}
	return nil
}

// slowFollower is at most what a follower is charged with, of a run whose largest event,
// fact or row is not larger than a batch.
const slowFollower = 256 << 10

// Who follows a run that is over holds a batch of it, of whatever size it is. A run
// has so many followers, and clients that do not read hold places, and nothing else. // P40
func TestAFollowerOfAFinishedRunHoldsABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := strings.Repeat("0123456789abcdef", 1<<18)
		w := &town{piece: 4 << 10, think: func(context.Context, []item.Item) (*model.Turn, error) { return says(text), nil }}
		r, l, archive := w.counting(t, memlimit.Options{})
		if err := r.Run(t.Context(), w.wants("p", "k", "h"), &reader{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		hold := make(chan struct{})
		var all sync.WaitGroup
		for range eventlog.DefaultFollowers {
			all.Go(func() {
				f := &reader{hold: hold}
				if err := r.Run(t.Context(), w.wants("p", "k", "h"), f); err != nil || f.text.String() != text {
					t.Errorf("a follower reads %d bytes: %v", f.text.Len(), err)
				}
			})
		}
		synctest.Wait()
		if held := l.HeldBy("o"); held == 0 || held > eventlog.DefaultFollowers*slowFollower {
			t.Errorf("%d bytes are held for %d followers of a text of %d", held, eventlog.DefaultFollowers, len(text))
		}
		err := r.Run(t.Context(), w.wants("p", "k", "h"), &reader{})
		if f := fault.From(err); f.Code != fault.Limited || f.Reason != "too_many_followers" || f.RetryAfter == 0 {
			t.Errorf("one follower too many: %v", err)
		}
		close(hold)
		all.Wait()
		if n := archive.loads.Load(); n != 0 {
			t.Errorf("the whole journal was read %d times", n)
		}
		if err := r.Run(t.Context(), w.wants("p", "k", "h"), &reader{}); err != nil {
			t.Errorf("the places were not given back: %v", err)
		}
	})
}

// A follower that stops reading gets the rest from the store later. Neither the run nor
// other followers wait for it, and the run keeps only its latest events.
func TestAFollowerThatFallsBehindReadsTheStore(t *testing.T) { // P40 L05
	synctest.Test(t, func(t *testing.T) {
		const pieces = 1024
		text := strings.Repeat("0123456789abcdef", pieces<<8)
		w := &town{piece: len(text) / pieces, pace: time.Millisecond, think: func(context.Context, []item.Item) (*model.Turn, error) {
			return says(text), nil
		}}
		r, l, _ := w.counting(t, memlimit.Options{})
		runID, err := r.Start(t.Context(), w.wants("p", "k", "h"))
		if err != nil {
			t.Fatal(err)
		}
		hold := make(chan struct{})
		slow, quick := &reader{hold: hold}, &reader{}
		var all sync.WaitGroup
		for _, f := range []*reader{slow, quick} {
			all.Go(func() {
				if err := r.Follow(t.Context(), eventlog.Follow{Org: "o", RunID: runID}, f); err != nil || f.text.String() != text {
					t.Errorf("a follower reads %d bytes: %v", f.text.Len(), err)
				}
			})
		}
		time.Sleep(pieces / 2 * time.Millisecond)
		synctest.Wait()
		if n := quick.got.Load(); n < int64(len(text)/4) {
			t.Errorf("the follower that reads has %d bytes of %d when half of them have come", n, len(text))
		}
		if held := l.HeldBy("o"); held > 3*slowFollower {
			t.Errorf("%d bytes are held for a run that has told %d, and two followers", held, len(text)/2)
		}
		time.Sleep(pieces * time.Millisecond)
		close(hold)
		all.Wait()
	})
}

// places keeps the positions of what a run tells.
type places []event.Position

func (p *places) Emit(at event.Position, _ event.Event) error {
	*p = append(*p, at)
	return nil
}

// A follower that has the end of a turn does not read the turn again. // P40
func TestAFollowerReadsNoTurnThatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{piece: 4 << 10, think: func(context.Context, []item.Item) (*model.Turn, error) { return says(strings.Repeat("x", 1<<20)), nil }}
		r, _, archive := w.counting(t, memlimit.Options{})
		var all places
		if err := r.Run(t.Context(), w.wants("p", "k", "h"), &all); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		before := archive.bytes.Load()
		f := eventlog.Follow{Org: "o", RunID: w.theRun(t).Summary.RunID, After: all[len(all)-2]} // the turn is complete, and the end follows
		var rest places
		if err := r.Follow(t.Context(), f, &rest); err != nil || len(rest) != 1 || rest[0] != all[len(all)-1] {
			t.Errorf("after %v the follower gets %v, want %v: %v", f.After, rest, all[len(all)-1:], err)
		}
		if n := archive.bytes.Load() - before; n > 64<<10 {
			t.Errorf("it reads rows of %d bytes", n)
		}
	})
}

// A client that leaves while the journal is read back takes it from nobody.
func TestAFollowerThatLeavesGivesItsPlaceBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		w := &town{think: func(context.Context, []item.Item) (*model.Turn, error) { <-release; return says("done"), nil }}
		r, _, _ := w.counting(t, memlimit.Options{})
		go func() { _ = r.Run(t.Context(), w.wants("p", "k", "h"), &reader{}) }()
		synctest.Wait()
		for range 3 * eventlog.DefaultFollowers {
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

// The number of followers of a run can be changed while they follow it.
func TestTheNumberOfFollowersCanBeChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		w := &town{think: func(context.Context, []item.Item) (*model.Turn, error) { <-release; return says("done"), nil }}
		r, _, _ := w.counting(t, memlimit.Options{})
		follow := func() <-chan error {
			req, ended := w.wants("p", "k", "h"), make(chan error, 1)
			req.Attach = true
			go func() { ended <- r.Run(t.Context(), req, &reader{}) }()
			synctest.Wait()
			return ended
		}
		started := follow()
		first := follow()
		r.SetMaxFollowers(1)
		var refused *fault.Error
		if err := <-follow(); !errors.As(err, &refused) || refused.Reason != "too_many_followers" {
			t.Errorf("with a limit of 1 the second follower got %v", err)
		}
		r.SetMaxFollowers(2)
		second := follow()
		close(release)
		for _, ended := range []<-chan error{started, first, second} {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
}

// A row that is larger than a follower may hold is refused before it is read. // P40
func TestARowThatIsTooLargeIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: func(context.Context, []item.Item) (*model.Turn, error) { return says(strings.Repeat("x", 1<<20)), nil }}
		large, _, _ := w.counting(t, memlimit.Options{})
		if err := large.Run(t.Context(), w.wants("p", "k", "h"), &reader{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		small, _, _ := w.counting(t, memlimit.Options{Run: 1 << 19})
		err := small.Run(t.Context(), w.wants("p", "k", "h"), &reader{})
		if f := fault.From(err); f.Code != fault.TooLarge || f.Reason != "run_memory_exceeded" {
			t.Errorf("%v", err)
		}
	})
}

// A decision about a run reads its facts. A fact that is larger than a batch is charged to
// the request that decides. If there is no memory for it, it is not read. // P40
func TestADecisionIsChargedWithTheFactsOfItsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: func(context.Context, []item.Item) (*model.Turn, error) { return says("over"), nil }}
		w.leave(t, "run_old", "k", largeWaiting(0)...)
		decide := func(bounds memlimit.Options) error {
			r, _, _ := w.counting(t, bounds)
			_, err := r.Decisions().Decide(t.Context(), "o", "wait_a", journal.Decision{}, run.TrustedDecider(org.Author{Principal: "human"}))
			return err
		}
		if f := fault.From(decide(memlimit.Options{Run: 1 << 19})); f.Code != fault.TooLarge || f.Reason != "run_memory_exceeded" {
			t.Errorf("with too little memory: %+v", f)
		}
		if err := decide(memlimit.Options{}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

// What a durable run has to tell is charged to it. Beyond its bound it ends. Its
// client cannot get the event that was too large, and gets nothing that follows it. // P40
func TestARunThatTellsTooMuchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &town{think: func(context.Context, []item.Item) (*model.Turn, error) { return says(strings.Repeat("x", 1<<20)), nil }}
		r, _, _ := w.counting(t, memlimit.Options{Run: 1 << 19})
		var told diary
		err := r.Run(t.Context(), w.wants("p", "k", "h"), &told)
		if f := fault.From(err); f.Code != fault.TooLarge || f.Reason != "run_memory_exceeded" {
			t.Errorf("its client is told %v", err)
		}
		for _, e := range told.events {
			switch e.(type) {
			case event.RoundDone, event.Finished:
				t.Errorf("its client got %T without the text before it", e)
			}
		}
		synctest.Wait()
		if got := w.theRun(t).Summary.Reason; got != event.Memory {
			t.Errorf("the run ended with %s", got)
		}
	})
}

// last keeps the end of a run.
type last struct{ event.Finished }

func (l *last) Emit(_ event.Position, e event.Event) error {
	if end, ok := e.(event.Finished); ok {
		l.Finished = end
	}
	return nil
}

// A turn for which there is no memory ends the run, and is not asked for
// again. // P40
func TestARunWhoseTurnDoesNotFitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		w := &town{think: func(context.Context, []item.Item) (*model.Turn, error) {
			asked++
			return nil, &model.Error{Class: model.Target, Err: &memlimit.Refused{Bound: memlimit.Org, Owner: "o"}}
		}}
		r, _, _ := w.counting(t, memlimit.Options{})
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
