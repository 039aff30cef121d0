package conformance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a child of the test. It is stopped, and waited for, when the test
// ends: by SIGTERM first, by SIGKILL ten seconds later. It is also stopped
// before the deadline of go test, which would otherwise leave it behind.
type process struct {
	pid    int
	stdin  io.WriteCloser
	exited chan struct{} // closed when the child is gone and its output is read
	stop   func()        // returns when the child is gone; may be called more than once
}

// startProcess starts command in the module's directory with env as its whole
// environment. onLine, when not nil, gets each line of standard output, from one
// goroutine. When the test fails, the end of what else the child wrote is logged.
func startProcess(t testing.TB, onLine func(line []byte), env []string, command string, args ...string) *process {
	t.Helper()
	ctx, cancel := processContext(t)
	output := &tail{}
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = output, output
	if onLine != nil {
		cmd.Stdout = &lineWriter{onLine: onLine}
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		t.Fatalf("starting %s: %v", command, err)
	}
	p := &process{pid: cmd.Process.Pid, stdin: stdin, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		if err := cmd.Wait(); errors.Is(err, exec.ErrWaitDelay) {
			output.note("\n(did not end within 10s of SIGTERM and was killed)")
		}
	}()
	p.stop = func() {
		cancel()
		<-p.exited
	}
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("%s (pid %d) wrote:\n%s", command, cmd.Process.Pid, output)
		}
	})
	return p
}

// processContext ends a little before the test binary's own deadline. It does
// not end with t.Context, so that a gateway outlives the requests of its test.
func processContext(t testing.TB) (context.Context, context.CancelFunc) {
	ctx := context.Background()
	if own, ok := t.(*testing.T); ok {
		if deadline, ok := own.Deadline(); ok {
			return context.WithDeadline(ctx, deadline.Add(-15*time.Second))
		}
	}
	return context.WithCancel(ctx)
}

// lineWriter calls onLine for every complete line written to it. One goroutine
// writes; it has no lock.
type lineWriter struct {
	onLine  func(line []byte)
	partial []byte
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.partial = append(w.partial, p...)
	for {
		line, rest, found := bytes.Cut(w.partial, []byte("\n"))
		if !found {
			return len(p), nil
		}
		w.onLine(line)
		w.partial = rest
	}
}

// tail keeps the last 16 KiB written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte // guarded by mu
}

func (w *tail) Write(p []byte) (int, error) {
	const limit = 16 << 10
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kept = append(w.kept, p...)
	if over := len(w.kept) - limit; over > 0 {
		w.kept = append([]byte(nil), w.kept[over:]...)
	}
	return len(p), nil
}

func (w *tail) note(text string) { _, _ = w.Write([]byte(text)) }

func (w *tail) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.kept)
}
