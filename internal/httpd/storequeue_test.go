package httpd

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// admit enters the queue of an org and keeps its place in the store.
func admit(t *testing.T, q *storeQueue, orgID string) error {
	_, err := q.Admit(t.Context(), orgID)
	return err
}

func TestAnOrgHasAFewRequestsAtATimeAndOthersDoNotWaitForThem(t *testing.T) { // A07
	synctest.Test(t, func(t *testing.T) {
		var all storeQueue
		for range maxAdmitted {
			if err := admit(t, &all, "a"); err != nil {
				t.Fatal(err)
			}
		}
		var order []int
		for i := range 5 {
			go func() {
				if err := admit(t, &all, "a"); err != nil {
					t.Error(err)
				}
				order = append(order, i) // one at a time, as others leave below
			}()
			synctest.Wait()
		}
		if err := admit(t, &all, "b"); err != nil || len(order) != 0 {
			t.Errorf("another org: %v; beyond %d requests, %v were let through", err, maxAdmitted, order)
		}
		for i := range 5 {
			all.leave("a")
			synctest.Wait()
			if len(order) != i+1 || order[i] != i {
				t.Errorf("after %d have left, %v were admitted", i+1, order)
			}
		}
		for range maxAdmitted {
			all.leave("a")
		}
		all.leave("b")
		if len(all.byOrg) != 0 {
			t.Errorf("%d orgs without requests are remembered", len(all.byOrg))
		}
	})
}

func TestARequestThatLeavesTheQueueDelaysNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all storeQueue
		for range maxAdmitted {
			_ = admit(t, &all, "a")
		}
		gone, cancel := context.WithCancel(t.Context())
		left := make(chan error, maxQueued)
		for range maxQueued {
			go func() {
				_, err := all.Admit(gone, "a")
				left <- err
			}()
		}
		synctest.Wait()
		var f *fault.Error
		if err := admit(t, &all, "a"); !errors.As(err, &f) || f.Code != fault.Limited || f.RetryAfter == 0 {
			t.Errorf("one more than the queue holds got %v", err)
		}
		cancel()
		synctest.Wait()
		for range maxQueued {
			if err := <-left; !errors.Is(err, context.Canceled) || fault.From(err).Reason != "caller_gone" { // logged as such, not as an internal error
				t.Errorf("a request whose context has ended got %v", err)
			}
		}
		all.leave("a")
		if err := admit(t, &all, "a"); err != nil {
			t.Errorf("the free place was refused: %v", err)
		}
		for range maxAdmitted {
			all.leave("a")
		}
		if len(all.byOrg) != 0 {
			t.Error("the org is still remembered")
		}
	})
}

// unread is the connection of a client that does not read.
type unread struct {
	*httptest.ResponseRecorder
	reads chan struct{}
}

func (w unread) Write(p []byte) (int, error) {
	<-w.reads
	return w.ResponseRecorder.Write(p)
}

// Clients that do not read their answers keep no other request of their org waiting.
func TestTheNextRequestIsAdmittedWhenTheAnswerBegins(t *testing.T) { // P40
	synctest.Test(t, func(t *testing.T) {
		reads := make(chan struct{})
		var all storeQueue
		sender := caller.Caller{Org: &org.Org{ID: "a"}, Admission: &all}
		serve := surface.Admitted(func(w http.ResponseWriter, _ *http.Request, _ caller.Caller) error {
			_, err := io.WriteString(w, "x")
			return err
		})
		var answered atomic.Int32
		for range 2 * maxAdmitted {
			go func() {
				if err := serve(unread{httptest.NewRecorder(), reads}, httptest.NewRequest("GET", "/", nil), sender); err != nil {
					t.Error(err)
				}
				answered.Add(1)
			}()
			synctest.Wait()
		}
		w := httptest.NewRecorder()
		if err := serve(w, httptest.NewRequest("GET", "/", nil), sender); err != nil || w.Body.String() != "x" || answered.Load() != 0 {
			t.Errorf("%v, %q; %d of the others are answered", err, w.Body, answered.Load())
		}
		close(reads)
		synctest.Wait()
		if len(all.byOrg) != 0 {
			t.Errorf("%d orgs without requests are remembered", len(all.byOrg))
		}
	})
}

// Clients of one key that do not read large answers hold at most 16 of them. Small answers and other keys do not
// count. // A07
func TestAKeyReadsAFewLargeAnswersAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all storeQueue
		memory := memlimit.New(memlimit.Options{})
		answer := func(key string, size int, reads chan struct{}) error {
			caller := caller.Caller{Org: &org.Org{ID: "a"}, Principal: org.Principal{ID: key}, Admission: &all, Account: memory.Open("a")}
			defer caller.Account.Close()
			return surface.WriteStored(unread{httptest.NewRecorder(), reads}, caller, http.StatusOK, strings.Repeat("x", size))
		}
		stalled, closed := make(chan struct{}), make(chan struct{})
		close(closed)
		var group sync.WaitGroup
		for range maxLargeAnswers {
			group.Go(func() {
				if err := answer("ann", largeAnswer, stalled); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if held := memory.Held(); held < maxLargeAnswers*largeAnswer {
			t.Errorf("%d bytes are charged", held)
		}
		if f := fault.From(answer("ann", largeAnswer, closed)); f.Code != fault.Limited || f.Reason != "too_many_readers" || f.RetryAfter == 0 {
			t.Errorf("one more large answer: %+v", f)
		}
		for _, err := range []error{answer("ann", 1000, closed), answer("ben", largeAnswer, closed)} {
			if err != nil {
				t.Error(err)
			}
		}
		close(stalled)
		group.Wait()
		if err := answer("ann", largeAnswer, closed); err != nil || len(all.byKey) != 0 {
			t.Errorf("afterwards: %v, %d keys are remembered", err, len(all.byKey))
		}
	})
}
