// Package pdf reads the text of PDFs in child processes: a PDF of a stranger is never parsed in the gateway.
//
//	web_scrape ── bytes ──► Reader ── stdin ──► turnpike pdf-child ── PDFium as WebAssembly, without files
//	           ◄── text ───        ◄─ stdout ─
//
// Each call has a process of its own, with no environment, limits on memory, time and output, and at
// most a few processes at the same time. The child is package child, which only that command links.
package pdf

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/turnpike-gateway/turnpike/internal/childproc"
)

// Command is the hidden command of the program that reads one PDF.
const Command = "pdf-child"

// The limits of a call.
const (
	MaxText     = 1 << 20   // bytes of text
	MaxPages    = 1000      // of a PDF that are read
	MaxMemory   = 256 << 20 // bytes of the WebAssembly memory
	CPUSeconds  = 40
	maxRefusal  = 300
	defaultTime = 30 * time.Second
	preparing   = 5 * time.Minute // of Prepare: seconds of one processor, which others may need
)

// DefaultMaxProcesses is the default of [Options].MaxProcesses.
const DefaultMaxProcesses = 2

// Options are the optional parameters of [New].
type Options struct {
	// Program is the program with the hidden command, and arguments before it. nil = this program.
	Program []string

	// Cache is the directory of the compiled WebAssembly, which is machine code: only the user of the
	// gateway may write to it. It is created. "" = each call compiles it, which takes seconds.
	Cache string

	// MaxProcesses is how many PDFs are read at the same time, of all orgs. Further calls wait.
	// 0 = DefaultMaxProcesses.
	MaxProcesses int

	// Timeout limits a call, without the waiting. 0 = 30 s.
	Timeout time.Duration
}

// Reader reads PDFs. It is safe for concurrent use. Create one per process.
type Reader struct {
	o     Options
	slots *semaphore.Weighted

	preparing chan struct{} // has room for the one who prepares
	prepared  atomic.Bool   // the cache has the compiled WebAssembly
}

// New returns a Reader. It starts nothing.
func New(o Options) (*Reader, error) {
	if o.Program == nil {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("the program that reads PDFs: %w", err)
		}
		o.Program = []string{self}
	}
	if o.MaxProcesses == 0 {
		o.MaxProcesses = DefaultMaxProcesses
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTime
	}
	if o.Cache != "" {
		if err := os.MkdirAll(o.Cache, 0o700); err != nil {
			return nil, fmt.Errorf("the cache of the PDF reader: %w", err)
		}
	}
	return &Reader{o: o, slots: semaphore.NewWeighted(int64(o.MaxProcesses)), preparing: make(chan struct{}, 1)}, nil
}

// Prepare fills the cache, once. Read does so if nobody has: call it when the gateway starts, so that the
// first PDF does not wait.
func (r *Reader) Prepare(ctx context.Context) error {
	if r.o.Cache == "" || r.prepared.Load() {
		return nil
	}
	select {
	case r.preparing <- struct{}{}:
		defer func() { <-r.preparing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if r.prepared.Load() {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, preparing)
	defer cancel()
	said := &childproc.Buffer{Most: maxRefusal}
	err := childproc.Run(limited, r.command(nil, io.Discard, said))
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != childproc.Refused { // no bytes are no PDF
		return fmt.Errorf("the PDF reader does not start: %w %s", cmp.Or(context.Cause(limited), err, errors.New("it accepts what is no PDF")), said)
	}
	r.prepared.Store(true)
	return nil
}

// command returns the command that reads a PDF.
func (r *Reader) command(data []byte, out, said io.Writer) *exec.Cmd {
	c := childproc.Command(r.o.Program, Command, r.o.Cache)
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(data), out, said
	return c
}

// Read returns the text of a PDF; "" = it has none. The text of an error is for the model.
func (r *Reader) Read(ctx context.Context, data []byte) (string, error) {
	if r.slots.Acquire(ctx, 1) != nil {
		return "", context.Cause(ctx)
	}
	defer r.slots.Release(1)
	if err := r.Prepare(ctx); ctx.Err() != nil {
		return "", context.Cause(ctx)
	} else if err != nil {
		return "", fmt.Errorf("the reader could not be started: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	out, said := &childproc.Buffer{Most: MaxText}, &childproc.Buffer{Most: maxRefusal}
	err := childproc.Run(limited, r.command(data, out, said))
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case limited.Err() != nil:
		return "", fmt.Errorf("reading it takes longer than %s", r.o.Timeout)
	case err == nil:
		return strings.ToValidUTF8(out.String(), "\ufffd"), nil
	case errors.As(err, &exit) && exit.ExitCode() == childproc.Refused:
		return "", errors.New(strings.ToValidUTF8(strings.TrimSpace(said.String()), ""))
	case errors.As(err, &exit):
		return "", errors.New("the reader needed more memory or time than it may have, or the PDF is damaged")
	}
	return "", errors.New("the reader could not be started")
}
