package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// process is an interpreter in a child process, in a process group of its own.
type process struct {
	driver  string
	command *exec.Cmd
	stdin   *os.File // the write end
	outputs []*os.File
	stdout  *capture
	stderr  *capture
	exited  chan struct{} // closed when the process has ended and status is set
	status  string
	closing sync.Once
	watch   func() string // says why the process must end; "" = it may go on
}

// lastOutput is how long the output of an ended process is read: a process that it has started may have
// the other end open.
const lastOutput = time.Second

// starting is how long an interpreter may take until it runs code.
const starting = 20 * time.Second

// watching is how often a running call is watched.
const watching = 100 * time.Millisecond

// startProcess starts a command and waits until it takes orders. The caller calls Close.
func startProcess(ctx context.Context, driver string, command *exec.Cmd, watch func() string) (*process, error) {
	p := &process{driver: driver, command: command, exited: make(chan struct{}), watch: watch}
	if err := p.launch(); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, starting)
	defer cancel()
	o, err := p.Run(ctx, "")
	switch {
	case err == nil && o.Ended == "" && o.Exit == 0:
		return p, nil
	case err == nil:
		err = fmt.Errorf("%s: %s", or(o.Ended, fmt.Sprintf("exit %d", o.Exit)), strings.TrimSpace(lastOf(o.Stderr)))
	}
	p.Close()
	return nil, err
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// lastOf returns the end of a text.
func lastOf(text string) string {
	const most = 1000
	if len(text) > most {
		text = strings.ToValidUTF8(text[len(text)-most:], "")
	}
	return text
}

// launch starts the process, and the goroutines that end with it.
func (p *process) launch() error {
	in, stdin, err := os.Pipe()
	if err != nil {
		return err
	}
	stdout, out, err := os.Pipe()
	if err != nil {
		closeAll(in, stdin)
		return err
	}
	stderr, errs, err := os.Pipe()
	if err != nil {
		closeAll(in, stdin, stdout, out)
		return err
	}
	p.command.Stdin, p.command.Stdout, p.command.Stderr = in, out, errs
	started := make(chan error)
	go p.wait(started)
	err = <-started
	closeAll(in, out, errs) // the process has its own copies
	if err != nil {
		closeAll(stdin, stdout, stderr)
		return err
	}
	p.stdin, p.outputs = stdin, []*os.File{stdout, stderr}
	p.stdout, p.stderr = newCapture(stdout, false), newCapture(stderr, true)
	return nil
}

func closeAll(files ...*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// wait starts the process and waits for its end. It keeps its thread until then: on Linux a process
// with a parent death signal is killed when the thread that started it ends.
func (p *process) wait(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.command.Start()
	started <- err
	if err != nil {
		return
	}
	_ = p.command.Wait() // what it returns is in ProcessState
	killGroup(p.command.Process)
	p.status = p.command.ProcessState.String()
	close(p.exited)
}

// Run implements [Interpreter].
func (p *process) Run(ctx context.Context, code string) (Outcome, error) {
	o := Outcome{Driver: p.driver, shown: ".shown-" + rand.Text()}
	mark := "\x00" + rand.Text() + "\x00"
	order, err := json.Marshal(Order{Code: code, Mark: mark, Shown: o.shown})
	if err != nil {
		return o, err
	}
	out, errs := p.stdout.begin(mark), p.stderr.begin(mark)
	ended := make(chan struct{})
	go func() { // a pipe has less room than the code may need
		defer close(ended)
		_, _ = p.stdin.Write(append(order, '\n')) // an error means that the process has ended
	}()
	o.Ended = p.await(ctx, out, errs)
	if o.Ended != "" {
		p.Close()
	}
	<-ended
	var reply []byte
	o.Stdout, o.StdoutDropped, _ = p.stdout.end()
	o.Stderr, o.StderrDropped, reply = p.stderr.end()
	if o.Ended != "" {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
			return o, cause
		}
		return o, nil
	}
	var r Reply
	if err := json.Unmarshal(reply, &r); err != nil {
		p.Close()
		o.Ended = "the interpreter gave an invalid reply"
		return o, nil //nolint:nilerr // the code has done it
	}
	o.Exit, o.Result, o.Notes = r.Exit, r.Result, notesOf(r)
	if r.Ended != "" {
		p.Close()
		o.Ended = lastOf(r.Ended)
	}
	if len(o.Result) > MaxResult+len("…") {
		o.Result = strings.ToValidUTF8(o.Result[:MaxResult], "") + "…"
	}
	return o, nil
}

// await waits for the end of a call and returns why the process must end; "" = it goes on.
func (p *process) await(ctx context.Context, out, errs <-chan struct{}) string {
	ticks := time.NewTicker(watching)
	defer ticks.Stop()
	for out != nil || errs != nil {
		select {
		case <-out:
			out = nil
		case <-errs:
			errs = nil
		case <-p.exited:
			return "the interpreter ended: " + p.status
		case <-ctx.Done():
			return "the time limit was reached"
		case <-ticks.C:
			if why := p.watch(); why != "" {
				return why
			}
		}
	}
	return p.watch()
}

// Close implements [Interpreter].
func (p *process) Close() {
	p.closing.Do(func() {
		_ = p.stdin.Close()
		select {
		case <-p.exited: // another process may have its id
		default:
			killGroup(p.command.Process)
		}
	})
	<-p.exited
	end := time.Now().Add(lastOutput)
	for _, f := range p.outputs {
		_ = f.SetReadDeadline(end)
	}
	<-p.stdout.done
	<-p.stderr.done
	closeAll(p.outputs...)
}

// runToEnd runs a command that takes no input until it ends, and returns the beginning of its output. It
// kills the command when ctx is done.
func runToEnd(ctx context.Context, command *exec.Cmd) (string, error) {
	p := &process{driver: command.Path, command: command, exited: make(chan struct{}), watch: func() string { return "" }}
	if err := p.launch(); err != nil {
		return "", err
	}
	p.stdout.begin(rand.Text())
	p.stderr.begin(rand.Text())
	select {
	case <-p.exited:
	case <-ctx.Done():
	}
	p.Close()
	out, _, _ := p.stdout.end()
	errs, _, _ := p.stderr.end()
	switch {
	case ctx.Err() != nil:
		return out + errs, context.Cause(ctx)
	case p.status != "exit status 0":
		return out + errs, errors.New(p.status)
	}
	return out + errs, nil
}
