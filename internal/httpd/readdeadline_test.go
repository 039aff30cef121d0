package httpd

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// countingConn counts the read deadlines that are set.
type countingConn struct {
	net.Conn
	n int
}

func (c *countingConn) SetReadDeadline(t time.Time) error {
	c.n++
	return c.Conn.SetReadDeadline(t)
}

// readEnd is how a Read ended.
type readEnd struct {
	text string
	err  error
	took time.Duration
}

// startRead starts a Read and waits until it blocks.
func startRead(c net.Conn) <-chan readEnd {
	ended := make(chan readEnd, 1)
	began := time.Now()
	go func() {
		p := make([]byte, 16)
		n, err := c.Read(p)
		ended <- readEnd{string(p[:n]), err, time.Since(began)}
	}()
	synctest.Wait()
	return ended
}

// in returns the time after d; 0 = no deadline.
func in(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}

// A Read ends when the latest deadline says, whatever was set before it and during it.
func TestReadEndsAtItsLatestDeadline(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name           string
		before, during []time.Duration // deadlines from now; 0 = none
		want           time.Duration   // 0 = it does not end by a deadline
	}{
		{"none", nil, nil, 0},
		{"one", []time.Duration{5 * s}, nil, 5 * s},
		{"passed", []time.Duration{-s}, nil, 1},
		{"later", []time.Duration{5 * s, 9 * s}, nil, 9 * s},
		{"earlier", []time.Duration{5 * s, 2 * s}, nil, 2 * s},
		{"cleared", []time.Duration{5 * s, 0}, nil, 0},
		{"set again", []time.Duration{5 * s, 0, 7 * s}, nil, 7 * s},
		{"first during the read", nil, []time.Duration{3 * s}, 3 * s},
		{"earlier during the read", []time.Duration{9 * s}, []time.Duration{3 * s}, 3 * s},
		{"later during the read", []time.Duration{3 * s}, []time.Duration{9 * s}, 9 * s},
		{"cleared during the read", []time.Duration{3 * s}, []time.Duration{0}, 0},
		{"cut off", []time.Duration{9 * s}, []time.Duration{-s}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				defer ours.Close()
				defer theirs.Close()
				c := &lazyReads{Conn: ours}
				// A deadline of an earlier Read is set and is still ahead.
				_ = c.SetReadDeadline(in(4 * s))
				first := startRead(c)
				_, _ = theirs.Write([]byte("a"))
				<-first

				for _, d := range tt.before {
					_ = c.SetReadDeadline(in(d))
				}
				if tt.before == nil {
					_ = c.SetReadDeadline(time.Time{})
				}
				ended := startRead(c)
				for _, d := range tt.during {
					_ = c.SetReadDeadline(in(d))
				}
				if tt.want == 0 {
					time.Sleep(time.Hour)
					_, _ = theirs.Write([]byte("b"))
					if got := <-ended; got.text != "b" || got.err != nil {
						t.Errorf("got %q, %v after %v", got.text, got.err, got.took)
					}
					return
				}
				got := <-ended
				if !errors.Is(got.err, os.ErrDeadlineExceeded) || got.took/time.Millisecond != tt.want/time.Millisecond {
					t.Errorf("got %v after %v, want the deadline after %v", got.err, got.took, tt.want)
				}
				// The connection can be read again.
				_ = c.SetReadDeadline(time.Time{})
				ended = startRead(c)
				_, _ = theirs.Write([]byte("c"))
				if got := <-ended; got.text != "c" || got.err != nil {
					t.Errorf("after the deadline: got %q, %v", got.text, got.err)
				}
			})
		})
	}
}

// The deadlines that net/http and the body set for a request whose client is quick need
// two changes of the connection.
func TestDeadlinesOfARequestAreSetTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		defer ours.Close()
		defer theirs.Close()
		counting := &countingConn{Conn: ours}
		c := &lazyReads{Conn: counting}
		for range 10 {
			_ = c.SetReadDeadline(in(2 * time.Minute)) // idle
			ended := startRead(c)
			_, _ = theirs.Write([]byte("request"))
			<-ended
			_ = c.SetReadDeadline(time.Time{})
			_ = c.SetReadDeadline(in(10 * time.Second)) // header
			_ = c.SetReadDeadline(time.Time{})
			_ = c.SetReadDeadline(in(30 * time.Second)) // body
			_ = c.SetReadDeadline(time.Time{})
			ended = startRead(c) // does the client leave?
			time.Sleep(time.Second)
			_ = c.SetReadDeadline(time.Unix(1, 0)) // the response is complete
			if got := <-ended; !errors.Is(got.err, os.ErrDeadlineExceeded) {
				t.Fatalf("got %v", got.err)
			}
			_ = c.SetReadDeadline(time.Time{})
		}
		if counting.n > 20 {
			t.Errorf("10 requests set %d deadlines, want at most 20", counting.n)
		}
	})
}
