package sse

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const beat = "w:: keep-alive\n\n|f"

func TestHeartbeats(t *testing.T) { // G14
	synctest.Test(t, func(t *testing.T) {
		h := NewHeartbeats(0)
		h.Start()
		defer h.Stop()
		time.Sleep(7 * time.Second) // so that the writers start between two rounds
		rec, busy := newRecorder(), newRecorder()
		w, b := NewWriter(rec, Options{Heartbeats: h}), NewWriter(busy, Options{Heartbeats: h})
		defer b.Close()
		for range 20 { // one event a second keeps b from being silent
			time.Sleep(time.Second)
			_ = b.Event([]byte("x"))
		}
		if strings.Contains(busy.text(), "keep-alive") {
			t.Error("a writer that was not silent got a heartbeat")
		}
		synctest.Wait()
		if got := rec.text(); got != beat+"|"+beat || !w.Started() || rec.status != 200 {
			t.Errorf("after 20 s of silence: %q", got)
		}
		time.Sleep(11 * time.Second) // 31 s: beats at 10, 20 and 30
		if got := rec.text(); got != beat+"|"+beat+"|"+beat {
			t.Errorf("after 31 s of silence: %q", got)
		}
		w.Close()
		time.Sleep(time.Minute)
		if got := rec.text(); strings.Count(got, "keep-alive") != 3 {
			t.Errorf("after Close: %q", got)
		}
	})
}

func TestHeartbeatComesAfterTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHeartbeats(15 * time.Second)
		h.Start()
		defer h.Stop()
		for i := range 50 { // different phases
			time.Sleep(time.Duration(i) * 311 * time.Millisecond)
			rec := newRecorder()
			w := NewWriter(rec, Options{Heartbeats: h})
			time.Sleep(14999 * time.Millisecond)
			synctest.Wait()
			early := rec.text()
			time.Sleep(minSleep + time.Millisecond)
			synctest.Wait()
			if early != "" || rec.text() != beat {
				t.Errorf("phase %d: %q, then %q", i, early, rec.text())
			}
			w.Close()
		}
	})
}

// A writer in use is skipped, so that it does not delay the heartbeats of others.
func TestHeartbeatDoesNotWaitForABusyWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHeartbeats(15 * time.Second)
		h.Start()
		defer h.Stop()
		stuck, silent := newRecorder(), newRecorder()
		stuck.block = make(chan struct{})
		w, s := NewWriter(stuck, Options{Heartbeats: h}), NewWriter(silent, Options{Heartbeats: h})
		defer s.Close()
		defer w.Close()
		var wg sync.WaitGroup
		wg.Go(func() { _ = w.Event([]byte("x")) })
		time.Sleep(16 * time.Second)
		if silent.text() != beat {
			t.Errorf("%q", silent.text())
		}
		close(stuck.block)
		wg.Wait()
	})
}

func TestHeartbeatsStartAndStopTwice(t *testing.T) {
	h := NewHeartbeats(0)
	h.Stop()
	h.Start()
	h.Start()
	h.Stop()
	h.Stop()
	h.Start()
	h.Stop()
}
