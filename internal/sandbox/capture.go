package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// capture reads an output of an interpreter, always, so that no output blocks it. It keeps the begin and the end of what
// is between two marks.
type capture struct {
	done chan struct{} // closed when the output has ended

	mu      sync.Mutex
	mark    []byte        // of the call; nil = there is none, and what comes is dropped
	text    []byte        // of the call, at most half of maxOutput
	tail    []byte        // the end of what follows, at least half of maxOutput if there is so much
	beyond  int64         // bytes of what follows
	pending []byte        // may be the beginning of a mark
	wantEnd bool          // a line follows the mark
	inReply bool          // the mark was seen, and the line is read
	reply   []byte        // the line, at most maxReply
	marked  chan struct{} // closed when the call is complete
}

func newCapture(r io.Reader, reply bool) *capture {
	c := &capture{done: make(chan struct{}), wantEnd: reply}
	go func() {
		defer close(c.done)
		buf := make([]byte, 16<<10)
		for {
			n, err := r.Read(buf)
			c.add(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	return c
}

// begin begins a call. The channel is closed when the mark, and the line after it, have come.
func (c *capture) begin(mark string) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mark, c.text, c.tail, c.beyond, c.pending, c.reply, c.inReply = []byte(mark), nil, nil, 0, nil, nil, false
	c.marked = make(chan struct{})
	return c.marked
}

// end ends a call and returns what was kept, with a line where something was dropped.
func (c *capture) end() (text string, dropped int64, reply []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mark != nil {
		c.keep(c.pending)
	}
	tail := c.tail[max(0, len(c.tail)-maxOutput/2):]
	dropped, reply = c.beyond-int64(len(tail)), c.reply
	text = joined(string(c.text), string(tail), dropped)
	c.mark, c.text, c.tail, c.pending, c.reply = nil, nil, nil, nil, nil
	return text, dropped, reply
}

func (c *capture) add(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mark == nil {
		return
	}
	if c.inReply {
		c.addReply(p)
		return
	}
	c.pending = append(c.pending, p...)
	if at := bytes.Index(c.pending, c.mark); at >= 0 {
		rest := c.pending[at+len(c.mark):]
		c.keep(c.pending[:at])
		c.pending = nil
		if c.inReply = c.wantEnd; c.inReply {
			c.addReply(rest)
		} else {
			c.complete()
		}
		return
	}
	if sure := len(c.pending) - len(c.mark) + 1; sure > 0 {
		c.keep(c.pending[:sure])
		c.pending = append(c.pending[:0], c.pending[sure:]...)
	}
}

func (c *capture) addReply(p []byte) {
	line, _, ended := bytes.Cut(p, []byte{'\n'})
	c.reply = append(c.reply, line[:min(len(line), maxReply-len(c.reply))]...)
	if ended {
		c.complete()
	}
}

// complete ends the call for the reader; called with mu held.
func (c *capture) complete() {
	c.mark = nil
	close(c.marked)
}

// keep adds to the text what has room, and to the tail what follows; called with mu held.
func (c *capture) keep(p []byte) {
	n := min(len(p), maxOutput/2-len(c.text))
	c.text = append(c.text, p[:n]...)
	c.tail = append(c.tail, p[n:]...)
	c.beyond += int64(len(p) - n)
	if len(c.tail) > maxOutput {
		c.tail = append(c.tail[:0], c.tail[len(c.tail)-maxOutput/2:]...)
	}
}

// joined returns the begin and the end of an output, and says how many bytes between them were dropped.
func joined(begin, end string, dropped int64) string {
	if dropped == 0 {
		return begin + end
	}
	return begin + fmt.Sprintf("\n[%d bytes were dropped here]\n", dropped) + end
}
