// Package spool holds the bodies of requests that may be too large for memory: the first MiB in
// memory, all of a larger one in a file.
//
//	Spool        the directory of the files; limits their bytes for the process, and for each org
//	  └─ Body    one body: written once, then read any number of times
//
// A file belongs to its owner only (0600). It has no name in the directory while it is used, so
// that nothing is left after a crash. Where the system does not allow that, Close removes it, and
// after a crash the next New does.
//
//	body := s.Body("acme", account)
//	defer body.Close()
//	if _, err := io.Copy(body, r.Body); err != nil {
//		return err
//	}
//	open, length := body.With(spool.Cut{From: 10, To: 13, Text: []byte(`"m"`)})
package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

// MaxMemory is the most bytes of a body that are held in memory.
const MaxMemory = 1 << 20

// filePattern are the names of the files, for [os.CreateTemp] and [filepath.Glob].
const filePattern = "body-*"

// Spool makes bodies. It is safe for concurrent use.
type Spool struct {
	dir  string
	most int64 // bytes of one body
	all  int64 // bytes of all files
	disk *memlimit.Limiter
}

// New returns a Spool whose files are in dir, which is made if it does not exist. It removes the
// files that another process has left there. A body may have at most `most` bytes, and all files
// together have at most `all`.
func New(dir string, most, all int64) (*Spool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory for large request bodies: %w", err)
	}
	left, err := filepath.Glob(filepath.Join(dir, filePattern))
	for _, path := range left {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		return nil, fmt.Errorf("remove request bodies of an earlier process: %w", err)
	}
	return &Spool{dir: dir, most: most, all: all, disk: memlimit.New(memlimit.Options{Process: all, Run: most})}, nil
}

// MaxBody returns how many bytes a body may have.
func (s *Spool) MaxBody() int64 { return s.most }

// Held returns the bytes of all files.
func (s *Spool) Held() int64 { return s.disk.Held() }

// Body returns an empty body of a request of the org. What it holds in memory is charged to memory.
// Close it.
func (s *Spool) Body(org string, memory *memlimit.Account) *Body {
	return &Body{spool: s, memory: memory.Share(), disk: s.disk.Open(org)}
}

// Body is the body of a request. It is written by one goroutine; afterwards it may be read by
// several.
type Body struct {
	spool  *Spool
	memory *memlimit.Share
	disk   *memlimit.Account

	held   []byte
	file   *os.File // nil = the body is in held
	named  bool     // the file still has its name
	length int64
}

// Write implements io.Writer. The bytes are counted before they are kept. An error is a
// *[fault.Error], or wraps one.
func (b *Body) Write(p []byte) (int, error) {
	size := b.length + int64(len(p))
	switch {
	case size > b.spool.most:
		return 0, b.spool.tooLarge()
	case b.file == nil && size > MaxMemory:
		if err := b.spill(); err != nil {
			return 0, err
		}
	case b.file == nil:
		if err := b.grow(int(size)); err != nil {
			return 0, err
		}
		b.held, b.length = append(b.held, p...), size
		return len(p), nil
	}
	if err := b.toFile(p); err != nil {
		return 0, err
	}
	b.length = size
	return len(p), nil
}

// grow makes room for size bytes in memory.
func (b *Body) grow(size int) error {
	if size <= cap(b.held) {
		return nil
	}
	const smallest = 4 << 10
	room := max(smallest, min(2*cap(b.held), MaxMemory), size)
	if err := b.memory.Acquire(room); err != nil {
		return err
	}
	old := cap(b.held)
	b.held = append(make([]byte, 0, room), b.held...)
	b.memory.Release(old)
	return nil
}

// spill moves the body to a file.
func (b *Body) spill() (err error) {
	if b.file, err = os.CreateTemp(b.spool.dir, filePattern); err != nil {
		return noFile(err)
	}
	b.named = os.Remove(b.file.Name()) != nil
	if err := b.toFile(b.held); err != nil {
		return err
	}
	b.memory.Release(cap(b.held))
	b.held = nil
	return nil
}

// toFile appends to the file.
func (b *Body) toFile(p []byte) error {
	if err := b.disk.Acquire(len(p)); err != nil {
		return b.spool.refused(err)
	}
	if _, err := b.file.Write(p); err != nil {
		return noFile(err)
	}
	return nil
}

// noFile returns the error of a body that cannot be written to a file.
func noFile(err error) error {
	return &fault.Error{Code: fault.Unavailable, Reason: "spool_unavailable", RetryAfter: retryAfter(), Err: err,
		Message: "the gateway cannot store the request body in its data directory at the moment; try again later"}
}

func (s *Spool) tooLarge() error {
	return fault.New(fault.TooLarge, "request_too_large", "the request body is larger than %d bytes (max_relay_body_mib)", s.most)
}

// refused returns the error for the caller of a charge that was refused.
func (s *Spool) refused(err error) error {
	var r *memlimit.Refused
	if !errors.As(err, &r) {
		return err
	}
	f := fault.New(fault.Unavailable, "overloaded", "the gateway holds %d MiB of large request bodies and takes no more at the moment (max_spool_mib is %d); try again later",
		r.Held>>20, s.all>>20)
	switch r.Bound {
	case memlimit.Run:
		return s.tooLarge()
	case memlimit.Org:
		f = fault.New(fault.Limited, "org_spool_exceeded", "the org holds %d MiB of large request bodies and may hold no more at the moment: "+
			"an org may hold at most twice what is left of the gateway's %d MiB (max_spool_mib); try again when some of its requests have finished", r.Held>>20, s.all>>20)
	case memlimit.Process:
	}
	f.RetryAfter = retryAfter()
	return f
}

// retryAfter spreads the retries of clients.
func retryAfter() time.Duration { return time.Duration(1+rand.IntN(5)) * time.Second } //nolint:gosec // not a secret

// Len returns the size of the body in bytes.
func (b *Body) Len() int64 { return b.length }

// Cut replaces a part of a body.
type Cut struct {
	From, To int64 // the part, in bytes from the beginning
	Text     []byte
}

// With returns the body with other text in place of some of its parts, which are in order and do
// not overlap. open returns it from its beginning, each time it is called; length is its size. The
// body must not be closed before its readers are.
func (b *Body) With(cuts ...Cut) (open func() io.ReadCloser, length int64) {
	length = b.length
	for _, c := range cuts {
		length += int64(len(c.Text)) - (c.To - c.From)
	}
	return func() io.ReadCloser {
		var parts []io.Reader
		at := int64(0)
		for _, c := range cuts {
			parts = append(parts, b.part(at, c.From), bytes.NewReader(c.Text))
			at = c.To
		}
		return io.NopCloser(io.MultiReader(append(parts, b.part(at, b.length))...))
	}, length
}

// Reader returns the whole body, for one goroutine. The body must not be closed before it is read.
func (b *Body) Reader() io.ReadSeeker { return b.part(0, b.length) }

// part returns a part of the body.
func (b *Body) part(from, to int64) io.ReadSeeker {
	if b.file == nil {
		return bytes.NewReader(slices.Clip(b.held[from:to]))
	}
	return io.NewSectionReader(b.file, from, to-from)
}

// Close removes the body. It may be called more than once.
func (b *Body) Close() error {
	if b.disk == nil {
		return nil
	}
	var err error
	if b.file != nil {
		err = b.file.Close()
		if b.named {
			err = errors.Join(err, os.Remove(b.file.Name()))
		}
	}
	b.memory.Close()
	b.disk.Close()
	b.disk, b.held = nil, nil
	return err
}
