package sse

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// recorder is a ResponseWriter that records calls in order.
type recorder struct {
	mu        sync.Mutex
	header    http.Header
	status    int
	calls     []string // "w:" and the bytes of a write; "f" for a flush
	deadlines []time.Time
	fail      error
	block     chan struct{}
}

func (r *recorder) Header() http.Header { return r.header }
func (r *recorder) WriteHeader(s int)   { r.status = s }
func (r *recorder) Write(p []byte) (int, error) {
	if r.block != nil {
		<-r.block
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, "w:"+string(p))
	return len(p), r.fail
}

func (r *recorder) FlushError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, "f")
	return nil
}

func (r *recorder) SetWriteDeadline(t time.Time) error {
	r.deadlines = append(r.deadlines, t)
	return nil
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.calls, "|")
}

func newRecorder() *recorder { return &recorder{header: http.Header{}} }

func TestWriterFrames(t *testing.T) {
	for _, tt := range []struct {
		name string
		send func(*Writer) error
		want string
	}{
		{"an event", func(w *Writer) error { return w.Event([]byte(`{"a":1}`)) }, "data: {\"a\":1}\n\n"},
		{"an empty event", func(w *Writer) error { return w.Event(nil) }, "data: \n\n"},
		{"a named event", func(w *Writer) error { return w.Named("x", []byte("a")) }, "event: x\ndata: a\n\n"},
		{"line ends in data become lines", func(w *Writer) error { return w.Event([]byte("a\nb\r\nc\rd\n\ndata: forged\n")) }, "data: a\ndata: b\ndata: c\ndata: d\ndata: \ndata: data: forged\ndata: \n\n"},
		{"an event with an id", func(w *Writer) error { return w.Identified("12.3", "x", []byte("a")) }, "id: 12.3\nevent: x\ndata: a\n\n"},
		{"an id cannot end its line", func(w *Writer) error { return w.Identified("1\n\ndata: forged\r", "", []byte("a")) }, "id: 1data: forged\ndata: a\n\n"},
		{"a name cannot end its line", func(w *Writer) error { return w.Named("x\n\ndata: forged\r", []byte("a")) }, "event: xdata: forged\ndata: a\n\n"},
		{"a comment", func(w *Writer) error { return w.Comment("hi\n\ndata: forged") }, ": hi\n: \n: data: forged\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := newRecorder()
			w := NewWriter(rec, Options{})
			defer w.Close()
			if err := tt.send(w); err != nil {
				t.Fatal(err)
			}
			if got := rec.text(); got != "w:"+tt.want+"|f" {
				t.Errorf("got %q, want one write and one flush of %q", got, tt.want)
			}
		})
	}
}

func TestWriterSendsHeaderWithFirstEvent(t *testing.T) { // G19
	rec := newRecorder()
	w := NewWriter(rec, Options{Header: http.Header{"X-Extra": {"1"}, "Cache-Control": {"public"}}})
	defer w.Close()
	if w.Started() || rec.status != 0 || len(rec.header) != 0 {
		t.Fatal("the header was sent before the first event")
	}
	if err := w.Event([]byte("a")); err != nil || !w.Started() || rec.status != 200 {
		t.Fatal(err, rec.status)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no", "X-Extra": "1",
	} {
		if got := rec.header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestWriterErrorsAreSticky(t *testing.T) {
	rec := newRecorder()
	rec.fail = errors.New("reset")
	w := NewWriter(rec, Options{})
	first, second := w.Event([]byte("a")), w.Comment("b")
	w.Close()
	if first != rec.fail || second != rec.fail || w.Event(nil) != rec.fail || rec.text() != "w:data: a\n\n" {
		t.Error(first, second, rec.text())
	}
	closed := NewWriter(newRecorder(), Options{})
	closed.Close()
	if err := closed.Event(nil); err != ErrClosed || closed.Started() {
		t.Error(err)
	}
}

func TestWriterDeadlinePerWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := newRecorder()
		w := NewWriter(rec, Options{})
		defer w.Close()
		for range 2 {
			rec.deadlines = nil
			now := time.Now()
			_ = w.Event([]byte("a"))
			if len(rec.deadlines) != 2 || !rec.deadlines[0].Equal(now.Add(30*time.Second)) || !rec.deadlines[1].IsZero() {
				t.Error(rec.deadlines)
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestWriteTimeoutEndsAStuckClient(t *testing.T) {
	ended := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		w := NewWriter(rw, Options{WriteTimeout: 50 * time.Millisecond})
		defer w.Close()
		data := []byte(strings.Repeat("x", 1<<20))
		for {
			if err := w.Event(data); err != nil {
				ended <- err
				return
			}
		}
	}))
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL) // reads nothing
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := <-ended; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
}

func TestWriterAcrossTheWire(t *testing.T) {
	beats := NewHeartbeats(time.Hour)
	beats.Start()
	defer beats.Stop()
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		w := NewWriter(rw, Options{Heartbeats: beats})
		defer w.Close()
		_ = w.Named("x", []byte("a\nb"))
		_ = w.Comment("c")
		_ = w.Event([]byte("d"))
	}))
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := readAll(resp.Body, ReaderOptions{})
	if err != io.EOF || len(all) != 2 || all[0] != (got{Name: "x", Data: "a\nb"}) || all[1] != (got{Data: "d"}) {
		t.Error(all, err)
	}
}

func BenchmarkWriter(b *testing.B) {
	w := NewWriter(discard{http.Header{}}, Options{})
	defer w.Close()
	data := []byte(strings.Repeat("x", 170))
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Event(data); err != nil {
			b.Fatal(err)
		}
	}
}

type discard struct{ h http.Header }

func (d discard) Header() http.Header              { return d.h }
func (discard) WriteHeader(int)                    {}
func (discard) Write(p []byte) (int, error)        { return len(p), nil }
func (discard) FlushError() error                  { return nil }
func (discard) SetWriteDeadline(_ time.Time) error { return nil }
