package sse

import (
	"bytes"
	"io"
)

const (
	firstBuffer = 4 << 10 // bytes of the first buffer; it then doubles
	scanWindow  = 4 << 10 // bytes searched for a line end at a time
	maxNoReads  = 100     // empty reads in a row until io.ErrNoProgress, as in bufio
)

// line returns the next line without its line end. It is valid until the next call.
// With an error it returns the unterminated rest of the stream.
func (r *Reader) line() ([]byte, error) {
	for {
		r.skip()
		if n := r.lineEnd(); n >= 0 {
			line := r.buf[r.start : r.start+n]
			r.skipLF = r.buf[r.start+n] == '\r'
			r.start += n + 1
			r.scanned = r.start
			if len(line) > r.maxLine {
				return nil, r.tooLong()
			}
			return line, nil
		}
		if r.end-r.start > r.maxLine {
			return nil, r.tooLong()
		}
		if r.err != nil {
			return r.buf[r.start:r.end], r.err
		}
		r.fill()
	}
}

func (r *Reader) tooLong() error {
	return r.fail(&LimitError{What: "line", Max: r.maxLine})
}

// skip skips the byte order mark at the start of the stream, and the LF of a CRLF. It
// never reads: an event must not wait for bytes after its empty line.
func (r *Reader) skip() {
	if r.skipLF && r.start < r.end {
		r.skipLF = false
		if r.buf[r.start] == '\n' {
			r.start++
		}
	}
	if !r.bomChecked {
		rest, mark := r.buf[r.start:r.end], []byte("\xef\xbb\xbf")
		switch {
		case bytes.HasPrefix(rest, mark):
			r.start += len(mark)
			r.bomChecked = true
		case !bytes.HasPrefix(mark, rest):
			r.bomChecked = true
		}
	}
	r.scanned = max(r.scanned, r.start)
}

// lineEnd returns the length of the line at the start of the buffer, or -1 if its end
// has not been read. It searches in windows: a stream with CR line ends would otherwise
// be searched for an LF to its end for each line.
func (r *Reader) lineEnd() int {
	for r.scanned < r.end {
		window := r.buf[r.scanned:min(r.scanned+scanWindow, r.end)]
		lf := bytes.IndexByte(window, '\n')
		if lf >= 0 {
			window = window[:lf]
		}
		if cr := bytes.IndexByte(window, '\r'); cr >= 0 {
			return r.scanned + cr - r.start
		}
		if lf >= 0 {
			return r.scanned + lf - r.start
		}
		r.scanned += len(window)
	}
	return -1
}

// fill reads more bytes into the buffer and sets err at the end of the stream. It moves
// or grows the buffer if it is full.
func (r *Reader) fill() {
	if r.start == r.end {
		r.start, r.end, r.scanned = 0, 0, 0
	}
	if r.end == len(r.buf) {
		r.makeRoom()
	}
	for range maxNoReads {
		n, err := r.src.Read(r.buf[r.end:])
		r.end += n
		if err != nil {
			r.err = err
		}
		if n > 0 || err != nil {
			return
		}
	}
	r.err = io.ErrNoProgress
}

func (r *Reader) makeRoom() {
	into := r.buf
	if r.end-r.start > len(r.buf)/2 || len(r.buf) == 0 {
		into = make([]byte, max(firstBuffer, 2*len(r.buf)))
	}
	n := copy(into, r.buf[r.start:r.end])
	r.buf, r.scanned, r.start, r.end = into, r.scanned-r.start, 0, n
}
