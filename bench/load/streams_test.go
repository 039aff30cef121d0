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

// halves answers with "a" and, when goOn is closed, "b". It counts the requests that
// it is answering.
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

// requests returns n exchanges with the same answer and mark.
func (h *halves) requests(n int, want string, mark int) []Exchange {
	xs := make([]Exchange, n)
	for i := range xs {
		xs[i] = Exchange{Post(h.Listener.Addr().String(), "/", "k", nil), Answer{200, "text/plain", []byte(want)}, mark}
	}
	return xs
}

func (h *halves) openStreams(t *testing.T, xs []Exchange) *Streams {
	t.Helper()
	c, err := OpenStreams(t.Context(), h.Listener.Addr().String(), xs)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestStreamsAreOpenAtTheSameTime(t *testing.T) {
	h := newHalves(t)
	c := h.openStreams(t, h.requests(100, "ab", 1))
	if n := h.open.Load(); n != 100 {
		t.Errorf("%d answers are under way, want 100", n)
	}
	close(h.goOn)
	if got := c.Finish(); got.Answers != 100 || got.Wrong() != 0 {
		t.Errorf("%d answers, %s", got.Answers, got.Describe())
	}
}

func TestFinishCountsWrongAnswers(t *testing.T) {
	h := newHalves(t)
	c := h.openStreams(t, append(h.requests(3, "ab", 1), h.requests(2, "ax", 1)...))
	close(h.goOn)
	if got := c.Finish(); got.Answers != 5 || got.Faults[Altered] != 2 || got.Wrong() != 2 {
		t.Errorf("%d answers, %s", got.Answers, got.Describe())
	}
}

func TestDisconnectEndsAllClients(t *testing.T) {
	for name, mark := range map[string]int{"in the answer": 1, "after the request": 0} {
		t.Run(name, func(t *testing.T) {
			h := newHalves(t)
			h.openStreams(t, h.requests(100, "ab", mark)).Disconnect()
			h.Close() // waits for the handlers, which only their clients can end
			if n := h.open.Load(); n != 0 {
				t.Errorf("%d answers are still under way", n)
			}
		})
	}
}

func TestOpenStreamsReturnsTheFirstError(t *testing.T) {
	h := newHalves(t)
	_, err := OpenStreams(t.Context(), h.Listener.Addr().String(), append(h.requests(20, "ab", 1), h.requests(1, "x", 1)...))
	if err == nil || !strings.Contains(err.Error(), "altered") {
		t.Errorf("error %v, want one that says altered", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := OpenStreams(ctx, h.Listener.Addr().String(), h.requests(2, "ab", 1)); err == nil {
		t.Error("streams were opened although the context had ended")
	}
}
