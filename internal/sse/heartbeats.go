package sse

import (
	"context"
	"sync"
	"time"
)

const (
	defaultInterval = 10 * time.Second
	// heartbeatTimeout is short because one goroutine serves all streams. Only a client
	// that reads nothing for an interval while its buffers are full reaches it.
	heartbeatTimeout = time.Second
	// minSleep is the shortest sleep between two rounds. It combines heartbeats that
	// are due at about the same time.
	minSleep = 250 * time.Millisecond
)

// Heartbeats sends a comment line to every Writer that has sent nothing for an interval,
// so that proxies keep the connection open. It runs one goroutine for all writers,
// between Start and Stop.
type Heartbeats struct {
	interval time.Duration

	mu      sync.Mutex // guards the fields below
	writers map[*Writer]struct{}
	stop    context.CancelFunc
	done    chan struct{}
}

// NewHeartbeats returns a Heartbeats that is not started. An interval of 0 means 10 s.
func NewHeartbeats(interval time.Duration) *Heartbeats {
	if interval <= 0 {
		interval = defaultInterval
	}
	return &Heartbeats{interval: interval, writers: make(map[*Writer]struct{})}
}

// Start starts the goroutine. It does nothing if it is already started.
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

// Stop stops the goroutine and waits for it. It does nothing if it is not started. The
// writers remain usable, and Start may be called again.
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

// run sleeps until the next writer is due. A writer that is added meanwhile is due a
// whole interval later, which is never before the sleep ends. add therefore need not
// wake the goroutine.
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
			w.sendHeartbeat()
		}
		clear(due)
		timer.Reset(max(rest, minSleep))
	}
}

// due appends the writers that have sent nothing for an interval. It also returns how
// long it takes until the next of the others is due.
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

// sendHeartbeat sends one comment line. It does not wait for a writer that is in use: such a
// writer is not silent.
func (w *Writer) sendHeartbeat() {
	if !w.mu.TryLock() {
		return
	}
	defer w.mu.Unlock()
	if w.err != nil || w.heartbeatsStopped {
		return
	}
	w.buf = append(w.buf, ": keep-alive\n"...)
	_ = w.send(min(heartbeatTimeout, w.o.WriteTimeout)) // the next Event returns the error
}
