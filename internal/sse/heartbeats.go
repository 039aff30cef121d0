package sse

import (
	"context"
	"sync"
	"time"
)

const (
	defaultInterval = 15 * time.Second
	// beatTimeout is short because one goroutine serves all streams. Only a
	// client that has read nothing for an interval and whose buffers are full
	// comes near it.
	beatTimeout = time.Second
	// minRest lets beats that are due at about the same time go out together.
	minRest = 250 * time.Millisecond
)

// Heartbeats sends a comment line to every Writer that has been silent for an
// interval, so that proxies keep its connection open. It is one goroutine for
// all writers, from Start to Stop.
type Heartbeats struct {
	interval time.Duration

	mu      sync.Mutex
	writers map[*Writer]struct{}
	stop    context.CancelFunc
	done    chan struct{}
}

// NewHeartbeats returns a stopped service. An interval of 0 means 15 s.
func NewHeartbeats(interval time.Duration) *Heartbeats {
	if interval <= 0 {
		interval = defaultInterval
	}
	return &Heartbeats{interval: interval, writers: make(map[*Writer]struct{})}
}

// Start begins to send. A second Start without Stop does nothing.
func (h *Heartbeats) Start() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stop != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	h.stop, h.done = cancel, done
	go func() {
		defer close(done)
		h.run(ctx)
	}()
}

// Stop ends sending and waits until the goroutine has gone. The writers stay
// usable.
func (h *Heartbeats) Stop() {
	h.mu.Lock()
	stop, done := h.stop, h.done
	h.stop, h.done = nil, nil
	h.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	<-done
}

func (h *Heartbeats) add(w *Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writers[w] = struct{}{}
}

func (h *Heartbeats) remove(w *Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.writers, w)
}

// run sleeps until the next writer is due. A writer that comes meanwhile is due
// one interval later, which is never before the end of the sleep; so nobody
// has to wake it.
func (h *Heartbeats) run(ctx context.Context) {
	timer := time.NewTimer(h.interval)
	defer timer.Stop()
	var (
		due  []*Writer
		rest time.Duration
	)
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		due, rest = h.due(due[:0], time.Now())
		for _, w := range due {
			if ctx.Err() != nil {
				return
			}
			w.beat()
		}
		clear(due)
		timer.Reset(max(rest, minRest))
	}
}

// due appends the writers that have been silent for an interval, and returns
// how long none of the others will have been.
func (h *Heartbeats) due(list []*Writer, now time.Time) ([]*Writer, time.Duration) {
	rest := h.interval
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.writers {
		silent := w.silence(now)
		if silent >= h.interval {
			list = append(list, w)
		} else {
			rest = min(rest, h.interval-silent)
		}
	}
	return list, rest
}

// beat sends one comment line. A writer that is busy is not silent.
func (w *Writer) beat() {
	if !w.mu.TryLock() {
		return
	}
	defer w.mu.Unlock()
	if w.err != nil || w.quiet {
		return
	}
	w.buf = append(w.buf, ": keep-alive\n"...)
	_ = w.send(min(beatTimeout, w.o.WriteTimeout)) // kept for the stream's next writer
}
