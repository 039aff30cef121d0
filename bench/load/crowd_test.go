package load

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// halves answers with "a" and, once it is told to go on, "b". It counts the
// requests that it is answering.
type halves struct {
	*httptest.Server
	goOn chan struct{}
	open atomic.Int64
}

func newHalves(t *testing.T) *halves {
	h := &halves{goOn: make(chan struct{})}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.open.Add(1)
		defer h.open.Add(-1)
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "a")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-h.goOn:
			_, _ = io.WriteString(w, "b")
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(h.Close)
	return h
}

// requests are n requests that want the same answer and are in it after mark bytes.
func (h *halves) requests(n int, want string, mark int) []Exchange {
	xs := make([]Exchange, n)
	for i := range xs {
		xs[i] = Exchange{Post(h.Listener.Addr().String(), "/", "k", nil), Answer{200, "text/plain", []byte(want)}, mark}
	}
	return xs
}

func (h *halves) gather(t *testing.T, xs []Exchange) *Crowd {
	t.Helper()
	c, err := Gather(t.Context(), h.Listener.Addr().String(), xs)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestACrowdIsInsideItsAnswersAtTheSameTime(t *testing.T) {
	h := newHalves(t)
	c := h.gather(t, h.requests(100, "ab", 1))
	if n := h.open.Load(); n != 100 {
		t.Errorf("%d answers are under way, want 100", n)
	}
	close(h.goOn)
	if got := c.Rest(); got.Answers != 100 || got.Wrong() != 0 {
		t.Errorf("%d answers, %s", got.Answers, got.Describe())
	}
}

func TestACrowdCountsWrongRests(t *testing.T) {
	h := newHalves(t)
	c := h.gather(t, append(h.requests(3, "ab", 1), h.requests(2, "ax", 1)...))
	close(h.goOn)
	if got := c.Rest(); got.Answers != 5 || got.Faults[Altered] != 2 || got.Wrong() != 2 {
		t.Errorf("%d answers, %s", got.Answers, got.Describe())
	}
}

func TestACrowdThatLeavesIsGone(t *testing.T) {
	for name, mark := range map[string]int{"inside of the answer": 1, "after the request": 0} {
		t.Run(name, func(t *testing.T) {
			h := newHalves(t)
			h.gather(t, h.requests(100, "ab", mark)).Leave()
			h.Close() // waits for the handlers, which only their clients can end
			if n := h.open.Load(); n != 0 {
				t.Errorf("%d answers are still under way", n)
			}
		})
	}
}

func TestACrowdThatCannotGatherSaysWhy(t *testing.T) {
	h := newHalves(t)
	_, err := Gather(t.Context(), h.Listener.Addr().String(), append(h.requests(20, "ab", 1), h.requests(1, "x", 1)...))
	if err == nil || !strings.Contains(err.Error(), "altered") {
		t.Errorf("error %v, want one that says altered", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Gather(ctx, h.Listener.Addr().String(), h.requests(2, "ab", 1)); err == nil {
		t.Error("a crowd gathered without its context")
	}
}
