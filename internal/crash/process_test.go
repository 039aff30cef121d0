//go:build unix

package crash_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long a test waits for something that should happen at once,
// on a machine that has much to do.
const patience = 30 * time.Second

// process is a gateway: a child of the test, which is killed and waited for when
// the test ends, and before go test would give up and leave it behind.
type process struct {
	cmd    *exec.Cmd
	output *output
	ended  chan struct{} // closed when it is gone and its output is read
}

// begin runs a program with env as its whole environment.
func begin(t *testing.T, env []string, program string, args ...string) *process {
	t.Helper()
	return beginAs(t, nil, env, program, args...)
}

// beginAs is begin as another user; nil = as that of the test.
func beginAs(t *testing.T, who *syscall.Credential, env []string, program string, args ...string) *process {
	t.Helper()
	ctx, cancel := lifetime(t)
	p := &process{cmd: exec.CommandContext(ctx, program, args...), output: &output{}, ended: make(chan struct{})}
	if who != nil {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	}
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = env, p.output, p.output
	if err := p.cmd.Start(); err != nil {
		cancel()
		t.Fatalf("starting %s: %v", program, err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // ProcessState says how it ended
	}()
	t.Cleanup(func() {
		cancel()
		<-p.ended
		if t.Failed() {
			t.Logf("pid %d, %v, wrote:\n%s", p.cmd.Process.Pid, p.cmd.ProcessState, p.output)
		}
	})
	return p
}

// lifetime ends a little before the test binary's own deadline. It does not end
// with t.Context, which is over before a test's cleanups.
func lifetime(t *testing.T) (context.Context, context.CancelFunc) {
	if deadline, ok := t.Deadline(); ok {
		return context.WithDeadline(context.Background(), deadline.Add(-10*time.Second))
	}
	return context.WithCancel(context.Background())
}

// signal sends a signal to a process that may be gone.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// kill is kill -9. It returns when the process is gone.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// wantKilled waits until the process has ended, and fails the test unless
// SIGKILL has ended it.
func (p *process) wantKilled(t *testing.T, what string) {
	t.Helper()
	await(t, "the end of the gateway, "+what, p.ended)
	if s, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !s.Signaled() || s.Signal() != syscall.SIGKILL {
		t.Fatalf("%s: the gateway ended by itself, %v", what, p.cmd.ProcessState)
	}
}

// await fails the test unless happened is closed, or sends, in time.
func await[T any](t *testing.T, what string, happened <-chan T) T {
	t.Helper()
	var value T
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case value = <-happened:
	case <-timer.C:
		t.Fatalf("waited %v in vain for %s", patience, what)
	}
	return value
}

// eventually asks again and again until the answer is yes.
func eventually(t *testing.T, what string, yes func() bool) {
	t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	const most = 4 * patience // a first start writes the whole schema, beside tests that compile programs
	over := time.NewTimer(most)
	defer over.Stop()
	for !yes() {
		select {
		case <-again.C:
		case <-over.C:
			t.Fatalf("waited %v in vain until %s", most, what)
		}
	}
}

// baseEnv is the environment of every child: nothing of the caller's that could
// change what a gateway does.
func baseEnv() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// output is what a process has written.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// after returns the word that follows the mark, once its line is complete.
func (o *output) after(mark string) (string, bool) {
	_, rest, found := strings.Cut(o.String(), mark)
	word, _, whole := strings.Cut(rest, "\n")
	return word, found && whole
}
