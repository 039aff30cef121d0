// Package proc starts the processes of a benchmark, reads their CPU time and memory,
// and stops each by its process id, however the benchmark ends.
//
//	var g proc.Group
//	defer g.Stop()
//	up, err := g.Start(proc.Command{Path: exe, Args: []string{"child", "upstream"}, Log: …})
//	addr, err := up.ReadLine(ctx)
package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	Log  string   // file for its standard error and, without PipeOutput, its standard output

	// PipeOutput makes [Process.ReadLine] read its standard output.
	PipeOutput bool
}

// Process is a started process. Its standard input is a pipe from this process, for
// [Process.WriteLine]. The pipe ends when this process ends, however that happens:
// children exit then.
type Process struct {
	name   string
	log    string
	cmd    *exec.Cmd
	input  *os.File // our end
	output *os.File // our end; nil without PipeOutput
	exited chan struct{}
	result error // of Wait; written before exited is closed
}

// Start starts a process. The caller owns it and must call [Process.Stop].
func Start(c Command) (*Process, error) {
	p := &Process{name: c.Name, log: c.Log, exited: make(chan struct{})}
	p.cmd = exec.CommandContext(context.Background(), c.Path, c.Args...) // ended by Stop alone
	p.cmd.Env = c.Env
	childEnds, err := p.open(c.PipeOutput)
	if err == nil {
		err = p.cmd.Start()
	}
	for _, f := range childEnds {
		_ = f.Close() // the child has its own copies
	}
	if err != nil {
		p.closePipes()
		return nil, fmt.Errorf("starting %s: %w", c.Name, err)
	}
	go func() { // ends with the process; Stop waits for it
		p.result = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// open opens the three standard files and returns the child's ends.
func (p *Process) open(pipeOutput bool) (childEnds []*os.File, err error) {
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
	if !pipeOutput {
		return []*os.File{log, in}, nil
	}
	output, out, err := os.Pipe()
	if err != nil {
		return []*os.File{log, in}, err
	}
	p.output, p.cmd.Stdout = output, out
	return []*os.File{log, in, out}, nil
}

func (p *Process) closePipes() {
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

// ReadLine returns the first line that the process writes to its standard output.
// It may be called once, and only if the command speaks. It fails when the
// process ends without one, after ten seconds, and when ctx ends.
func (p *Process) ReadLine(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", p.describe(err)
	}
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

// WriteLine writes a line to the process's standard input.
func (p *Process) WriteLine(line string) error {
	if _, err := p.input.WriteString(line + "\n"); err != nil {
		return p.describe(err)
	}
	return nil
}

// Stop ends the process with SIGTERM, after five seconds with SIGKILL, and waits until
// it has ended. It fails if the process had to be killed or had ended before. It may
// be called once.
func (p *Process) Stop() error {
	defer p.closePipes()
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

// describe adds the name of the process and the end of its log to an error.
func (p *Process) describe(err error) error {
	if words := p.Tail(); words != "" {
		return fmt.Errorf("%s: %w; end of its log:\n%s", p.name, err, words)
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

// Group owns processes. The zero value is empty and ready; it is not safe for
// concurrent use.
type Group struct {
	procs []*Process
}

// Start starts a process that [Group.Stop] will stop.
func (g *Group) Start(c Command) (*Process, error) {
	p, err := Start(c)
	if err == nil {
		g.procs = append(g.procs, p)
	}
	return p, err
}

// Stop stops all processes, the last started first, and waits for them. It may
// be called again, also after more were started.
func (g *Group) Stop() error {
	var errs []error
	for i := len(g.procs) - 1; i >= 0; i-- {
		errs = append(errs, g.procs[i].Stop())
	}
	g.procs = nil
	return errors.Join(errs...)
}

// Build builds the command in dir, relative to the root of the module, to the
// executable out.
func Build(ctx context.Context, dir, out string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, dir)
	cmd.Dir = root
	if words, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", dir, err, words)
	}
	return nil
}

// moduleRoot is the nearest directory above the current one with a go.mod.
func moduleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod in or above %s", start)
		}
	}
}
