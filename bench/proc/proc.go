package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// stopTime is how long a process may take to end before it is killed.
const stopTime = 5 * time.Second

// Command is a process to start.
type Command struct {
	Name string   // for messages
	Path string   // the executable
	Args []string // without the executable's name
	Env  []string // the whole environment
	Log  string   // file that takes its standard error and, unless Speaks, its output

	// Speaks says that its standard output is read with [Process.Line].
	Speaks bool
}

// Process is a started process. Its standard input is a pipe that carries what
// [Process.Tell] says and ends when this process ends, however that happens: a
// child that watches it cannot be left behind.
type Process struct {
	name   string
	log    string
	cmd    *exec.Cmd
	input  *os.File // our end
	output *os.File // our end; nil unless the command speaks
	exited chan struct{}
	result error // of Wait; written before exited is closed
}

// Start starts a process. The caller owns it and must call [Process.Stop].
func Start(c Command) (*Process, error) {
	p := &Process{name: c.Name, log: c.Log, exited: make(chan struct{})}
	p.cmd = exec.CommandContext(context.Background(), c.Path, c.Args...) // ended by Stop alone
	p.cmd.Env = c.Env
	theirs, err := p.open(c.Speaks)
	if err == nil {
		err = p.cmd.Start()
	}
	for _, f := range theirs {
		_ = f.Close() // the child has its own copies
	}
	if err != nil {
		p.closeOurs()
		return nil, fmt.Errorf("starting %s: %w", c.Name, err)
	}
	go func() { // ends with the process; Stop waits for it
		p.result = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// open opens the three standard files and returns the child's ends.
func (p *Process) open(speaks bool) (theirs []*os.File, err error) {
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	in, input, err := os.Pipe()
	if err != nil {
		return []*os.File{log}, err
	}
	p.input, p.cmd.Stdin = input, in
	if !speaks {
		return []*os.File{log, in}, nil
	}
	output, out, err := os.Pipe()
	if err != nil {
		return []*os.File{log, in}, err
	}
	p.output, p.cmd.Stdout = output, out
	return []*os.File{log, in, out}, nil
}

func (p *Process) closeOurs() {
	for _, f := range []*os.File{p.input, p.output} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Line returns the first line that the process writes to its standard output.
// It may be called once, and only if the command speaks. It fails when the
// process ends without one, after ten seconds, and when ctx ends.
func (p *Process) Line(ctx context.Context) (string, error) {
	if err := p.output.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", p.describe(err)
	}
	stop := context.AfterFunc(ctx, func() { _ = p.output.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := bufio.NewReader(p.output).ReadString('\n')
	if err != nil {
		return "", p.describe(errors.Join(err, ctx.Err()))
	}
	return strings.TrimSpace(line), nil
}

// Tell writes a line to the process's standard input.
func (p *Process) Tell(line string) error {
	if _, err := p.input.WriteString(line + "\n"); err != nil {
		return p.describe(err)
	}
	return nil
}

// Stop ends the process and waits until it has ended: politely first, after
// five seconds by force. The result says whether force was needed or the
// process had ended before by itself. It may be called once.
func (p *Process) Stop() error {
	defer p.closeOurs()
	select {
	case <-p.exited:
		return p.describe(fmt.Errorf("ended by itself: %w", p.result))
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		_ = p.input.Close() // where there is no such signal, or it has just ended
	}
	timer := time.NewTimer(stopTime)
	defer timer.Stop()
	select {
	case <-p.exited:
		return nil
	case <-timer.C:
	}
	err := p.cmd.Process.Kill()
	<-p.exited
	return p.describe(errors.Join(fmt.Errorf("did not end within %v and was killed", stopTime), err))
}

// describe adds the name and the last words of the process to an error.
func (p *Process) describe(err error) error {
	if words := p.Tail(); words != "" {
		return fmt.Errorf("%s: %w; it last wrote:\n%s", p.name, err, words)
	}
	return fmt.Errorf("%s: %w", p.name, err)
}

// Tail returns the last two kilobytes or less of the process's log.
func (p *Process) Tail() string {
	const most = 2 << 10
	b, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b[max(0, len(b)-most):]))
}
