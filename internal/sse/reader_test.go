package sse

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

type got struct {
	Name, Data, ID string
	Retry          time.Duration
	Partial        bool
}

// readAll returns the events and the error that ended them.
func readAll(src io.Reader, o ReaderOptions) ([]got, error) {
	r := NewReader(src, o)
	var all []got
	for {
		ev, err := r.Next()
		if err != nil {
			return all, err
		}
		all = append(all, got{string(ev.Name), string(ev.Data), ev.ID, ev.Retry, ev.Partial})
	}
}

func TestReader(t *testing.T) { // D15: SSE bodies parsed
	for _, tt := range []struct {
		name, in string
		want     []got
	}{
		{"one event", "data: a\n\n", []got{{Data: "a"}}},
		{"LF, CRLF and CR end lines", "data: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\n\r\n", []got{{Data: "a"}, {Data: "b"}, {Data: "c"}, {Data: "d"}}},
		{"several data lines are joined", "data: a\ndata:b\ndata:  c\n\n", []got{{Data: "a\nb\n c"}}},
		{"a byte order mark is skipped once", "\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\ndata: c\n\n", []got{{Data: "a"}, {Data: "c"}}},
		{"comments are skipped", ": hello\n\ndata: a\n: x\ndata: b\n\n", []got{{Data: "a\nb"}}},
		{"an event without data is ignored", "event: a\n\ndata: b\n\n", []got{{Data: "b"}}},
		{"an empty data line is an event", "data\n\ndata:\n\n", []got{{}, {}}},
		{"name, id and retry", "event: x\nid: 1\nretry: 1500\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", []got{{Name: "x", Data: "a", ID: "1", Retry: 1500 * time.Millisecond}, {Data: "b", ID: "1"}, {Data: "c"}}},
		{"an id with NUL and a retry with letters are ignored", "id: 1\x002\nretry: 3s\ndata: a\n\n", []got{{Data: "a"}}},
		{"unknown fields are ignored", "foo: 1\n data: 2\ndata: a\n\n", []got{{Data: "a"}}},
		{"an open event at the end is partial", "data: a\n\ndata: b\ndata: c", []got{{Data: "a"}, {Data: "b\nc", Partial: true}}},
		{"an empty stream", "", nil},
		{"an incomplete byte order mark", "\xef\xbb", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for name, src := range map[string]io.Reader{
				"whole": strings.NewReader(tt.in), "bytes": iotest.OneByteReader(strings.NewReader(tt.in)),
				"data with EOF": iotest.DataErrReader(strings.NewReader(tt.in)),
			} {
				all, err := readAll(src, ReaderOptions{})
				if diff := cmp.Diff(tt.want, all); diff != "" || err != io.EOF {
					t.Errorf("%s: %v\n%s", name, err, diff)
				}
			}
		})
	}
}

func TestReaderLimits(t *testing.T) {
	o := ReaderOptions{MaxLine: 12, MaxEvent: 10}
	for _, tt := range []struct {
		name, in, what string
		events         int
	}{
		{"a line at the limit", "data: 123456\n\n", "", 1},
		{"a longer line", "data: a\n\ndata: 1234567\n\ndata: b\n\n", "line", 1},
		{"a longer line without an end", "data: 1234567", "line", 0},
		{"a longer comment", ": 12345678901234", "line", 0},
		{"an event at the limit", "data: 12345\ndata: 6789\n\n", "", 1},
		{"a larger event", "data: 12345\ndata: 67890\n\ndata: b\n\n", "event", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, src := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in))} {
				all, err := readAll(src, o)
				var limit *LimitError
				if errors.As(err, &limit) != (tt.what != "") || limit != nil && limit.What != tt.what || len(all) != tt.events {
					t.Errorf("%d events, then %v", len(all), err)
				}
			}
		})
	}
}

func TestReaderErrorsAreSticky(t *testing.T) {
	broken := errors.New("broken")
	r := NewReader(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)), ReaderOptions{})
	for i, want := range []string{"a", "b"} {
		ev, err := r.Next()
		if err != nil || string(ev.Data) != want || ev.Partial != (i == 1) {
			t.Fatalf("%q %v %v", ev.Data, ev.Partial, err)
		}
	}
	for range 2 {
		if _, err := r.Next(); err != broken {
			t.Fatal(err)
		}
	}
	big := NewReader(strings.NewReader("data: 12345\n\ndata: a\n\n"), ReaderOptions{MaxEvent: 2})
	for range 2 {
		if _, err := big.Next(); err == nil || err.Error() != "event stream: event is larger than 2 bytes" {
			t.Fatal(err)
		}
	}
}

// An event is returned as soon as its empty line is read, also if that line ends with a
// CR that an LF may follow.
func TestReaderDoesNotWait(t *testing.T) {
	pr, pw := io.Pipe()
	defer pr.Close()
	sent := make(chan error, 1)
	go func() {
		_, err := pw.Write([]byte("data: a\r\n\r"))
		sent <- err
	}()
	ev, err := NewReader(pr, ReaderOptions{}).Next()
	if string(ev.Data) != "a" || err != nil || <-sent != nil {
		t.Fatalf("%q %v", ev.Data, err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add("data: a\n\n", uint16(3))
	f.Add("\xef\xbb\xbfevent: x\r\ndata: a\r\rdata: b\n\r\nid: 7\n:c\ndata: 1234567890123456789012345678901234567890", uint16(1))
	f.Fuzz(func(t *testing.T, in string, cut uint16) {
		o := ReaderOptions{MaxLine: 32, MaxEvent: 48}
		want, wantErr := readAll(strings.NewReader(in), o)
		at := int(cut) % (len(in) + 1)
		for _, src := range []io.Reader{
			iotest.OneByteReader(strings.NewReader(in)),
			io.MultiReader(strings.NewReader(in[:at]), strings.NewReader(in[at:])),
			iotest.HalfReader(strings.NewReader(in)),
		} {
			all, err := readAll(src, o)
			if diff := cmp.Diff(want, all); diff != "" || err.Error() != wantErr.Error() {
				t.Fatalf("%v, whole: %v\n%s", err, wantErr, diff)
			}
		}
	})
}

func BenchmarkReader(b *testing.B) {
	event := `data: {"id":"chatcmpl-123","object":"chat.completion.chunk","created":1773932885,"model":"gpt-5","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}` + "\n\n"
	r := NewReader(&repeat{text: event}, ReaderOptions{})
	b.SetBytes(int64(len(event)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Next(); err != nil {
			b.Fatal(err)
		}
	}
}

// repeat is an endless reader of one text.
type repeat struct {
	text string
	at   int
}

func (r *repeat) Read(p []byte) (int, error) {
	n := copy(p, r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	return n, nil
}

// A Reader that is released gives its memory to a later one, unless it has grown too large, and
// has no further event.
func TestReleasedReaderGivesItsMemoryBack(t *testing.T) {
	for _, tt := range []struct {
		name string
		size int
		kept bool
	}{
		{"small events", 100, true},
		{"a large event", maxKept, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(strings.NewReader("data: "+strings.Repeat("a", tt.size)+"\n\ndata: b\n\n"), ReaderOptions{})
			if ev, err := r.Next(); err != nil || len(ev.Data) != tt.size {
				t.Fatal(len(ev.Data), err)
			}
			b, buf := r.from, &r.buf[0]
			r.Release()
			if kept := len(b.buf) > 0; kept != tt.kept || kept && &b.buf[0] != buf {
				t.Errorf("kept: %v", kept)
			}
			if ev, err := r.Next(); err != errReleased {
				t.Error(ev, err)
			}
			r.Release() // does nothing
		})
	}
}
