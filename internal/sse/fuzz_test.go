package sse

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"
)

// FuzzWriter checks that a Reader returns exactly the events that a Writer sent, for any
// name, data and comment.
func FuzzWriter(f *testing.F) {
	f.Add("message", "{\"a\":1}", "ping")
	f.Add("x\n\ndata: forged", "a\n\ndata: forged\r\rid: 7\n", "\n\nevent: forged\ndata: x\n\n")
	f.Add("x\rdata: forged\r", "", "\r\rretry: 1\r\r")
	f.Add("", "", "")
	f.Add("\ufeff", "\ufeffdata: x\r\n\r\n", ":")
	f.Fuzz(func(t *testing.T, name, data, comment string) {
		rec := httptest.NewRecorder()
		w := NewWriter(rec, Options{})
		for _, err := range []error{w.Comment(comment), w.Named(name, []byte(data)), w.Comment(comment), w.Event([]byte(data))} {
			if err != nil {
				t.Fatal(err)
			}
		}
		w.Close()
		lines := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(data)
		names := []string{strings.NewReplacer("\r", "", "\n", "").Replace(name), ""}
		r := NewReader(rec.Body, ReaderOptions{})
		for i, want := range names {
			ev, err := r.Next()
			if err != nil || string(ev.Data) != lines || string(ev.Name) != want || ev.ID != "" || ev.Retry != 0 || ev.Partial {
				t.Fatalf("event %d: %+v, %v; sent name %q and data %q", i, ev, err, name, data)
			}
		}
		if ev, err := r.Next(); err != io.EOF {
			t.Fatalf("after the last event: %+v, %v", ev, err)
		}
	})
}
