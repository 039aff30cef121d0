package admin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

func TestAnOrgHasAFewRequestsAtATimeAndOthersDoNotWaitForThem(t *testing.T) { // A07
	synctest.Test(t, func(t *testing.T) {
		var all turns
		for range atOnce {
			if err := all.take(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
		}
		var order []int
		for i := range 5 {
			go func() {
				if err := all.take(t.Context(), "a"); err != nil {
					t.Error(err)
				}
				order = append(order, i) // one at a time: a turn is given back below
			}()
			synctest.Wait()
		}
		if err := all.take(t.Context(), "b"); err != nil || len(order) != 0 {
			t.Errorf("another org: %v; beyond %d requests, %v were let through", err, atOnce, order)
		}
		for i := range 5 {
			all.leave("a")
			synctest.Wait()
			if len(order) != i+1 || order[i] != i {
				t.Errorf("after %d turns were given back, %v went on", i+1, order)
			}
		}
		for range atOnce {
			all.leave("a")
		}
		all.leave("b")
		if len(all.of) != 0 {
			t.Errorf("%d orgs without requests are remembered", len(all.of))
		}
	})
}

func TestARequestThatLeavesTheLineHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all turns
		for range atOnce {
			_ = all.take(t.Context(), "a")
		}
		gone, cancel := context.WithCancel(t.Context())
		left := make(chan error, inLine)
		for range inLine {
			go func() { left <- all.take(gone, "a") }()
		}
		synctest.Wait()
		var f *fault.Error
		if err := all.take(t.Context(), "a"); !errors.As(err, &f) || f.Code != fault.Limited || f.RetryAfter == 0 {
			t.Errorf("one more than the line has room for got %v", err)
		}
		cancel()
		synctest.Wait()
		for range inLine {
			if err := <-left; !errors.Is(err, context.Canceled) {
				t.Errorf("a request whose context has ended got %v", err)
			}
		}
		all.leave("a")
		if err := all.take(t.Context(), "a"); err != nil {
			t.Errorf("the turn that is free was refused: %v", err)
		}
		for range atOnce {
			all.leave("a")
		}
		if len(all.of) != 0 {
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
func TestATurnEndsWhenTheAnswerBegins(t *testing.T) { // P40
	synctest.Test(t, func(t *testing.T) {
		h, reads := New(Options{}), make(chan struct{})
		caller := run.Caller{Org: &org.Org{ID: "a"}}
		serve := h.InTurn(func(w http.ResponseWriter, _ *http.Request, _ run.Caller) error {
			_, err := io.WriteString(w, "x")
			return err
		})
		var answered atomic.Int32
		for range 2 * atOnce {
			go func() {
				if err := serve(unread{httptest.NewRecorder(), reads}, httptest.NewRequest("GET", "/", nil), caller); err != nil {
					t.Error(err)
				}
				answered.Add(1)
			}()
			synctest.Wait()
		}
		w := httptest.NewRecorder()
		if err := serve(w, httptest.NewRequest("GET", "/", nil), caller); err != nil || w.Body.String() != "x" || answered.Load() != 0 {
			t.Errorf("%v, %q; %d of the others are answered", err, w.Body, answered.Load())
		}
		close(reads)
		synctest.Wait()
		if len(h.turns.of) != 0 {
			t.Errorf("%d orgs without requests are remembered", len(h.turns.of))
		}
	})
}
