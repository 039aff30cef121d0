package mcptool

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Limits of a child process.
const (
	grace         = 2 * time.Second // to end after its input was closed, and then after SIGTERM
	drainOutput   = time.Second     // for reading the rest of its output after its end
	maxStderrLine = 1 << 10         // bytes of one line on standard error; the rest of a line is dropped
	maxTail       = 8               // last lines on standard error that the error of its end has
)

// errStart wraps the error of a command that could not be started.
var errStart = errors.New("command not started")

// exitError is the end of a child process.
type exitError struct {
	status string   // "exit status 3", "signal: killed"
	said   []string // the last lines on its standard error
}

func (e *exitError) Error() string { return "server process ended: " + e.status }

// child is a running command in a new process group. When the command ends, the rest of its
// group is killed.
type child struct {
	command *exec.Cmd
	stdin   *os.File // to write to
	stdout  *os.File // to read from
	stderr  *os.File
	log     *slog.Logger

	work     sync.WaitGroup
	exited   chan struct{} // closed when it has ended and status is set
	status   string
	tail     []string // of standard error; final when work is over
	stopping sync.Once
}

// startChild starts a command with the environment env and nothing else. The caller must call
// stop and then release.
func startChild(command, env []string, log *slog.Logger) (*child, error) {
	run := exec.Command(command[0], command[1:]...) //nolint:noctx // the end of a context would kill it without asking first
	c := &child{command: run, log: log, exited: make(chan struct{})}
	c.command.Env = env
	c.command.SysProcAttr = ownGroup()
	theirs, err := c.pipes()
	if err == nil {
		started := make(chan error)
		c.work.Go(func() { c.wait(started) })
		err = <-started
	}
	closeAll(theirs) // the child has its own copies
	if err != nil {
		c.work.Wait()
		closeAll([]*os.File{c.stdin, c.stdout, c.stderr})
		return nil, fmt.Errorf("%w: %w", errStart, err)
	}
	c.work.Go(c.readStderr)
	return c, nil
}

// pipes creates the three streams and returns the ends for the child.
func (c *child) pipes() (theirs []*os.File, err error) {
	var in, out, errs *os.File
	if in, c.stdin, err = os.Pipe(); err == nil {
		c.command.Stdin = in
	}
	if err == nil {
		if c.stdout, out, err = os.Pipe(); err == nil {
			c.command.Stdout = out
		}
	}
	if err == nil {
		if c.stderr, errs, err = os.Pipe(); err == nil {
			c.command.Stderr = errs
		}
	}
	return []*os.File{in, out, errs}, err
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// wait starts the process and waits for its end. It keeps its thread until then: on Linux a
// child with a parent death signal is killed when the thread that started it ends.
func (c *child) wait(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.command.Start()
	started <- err
	if err != nil {
		return
	}
	_ = c.command.Wait() // the error is in ProcessState
	c.status = c.command.ProcessState.String()
	killGroup(c.command.Process) // processes that it has started
	end := time.Now().Add(drainOutput)
	_ = c.stdout.SetReadDeadline(end) // a process that left the group may have the other end open
	_ = c.stderr.SetReadDeadline(end)
	close(c.exited)
}

// readStderr reads standard error. It logs each line and keeps the last ones for exitError.
func (c *child) readStderr() {
	src := bufio.NewReaderSize(c.stderr, maxStderrLine)
	for {
		line, cut, err := src.ReadLine()
		if text := strings.ToValidUTF8(string(bytes.TrimSpace(line)), "\ufffd"); text != "" {
			c.log.Debug("mcp server says", "line", text)
			if len(c.tail) == maxTail {
				c.tail = append(c.tail[:0], c.tail[1:]...)
			}
			c.tail = append(c.tail, text)
		}
		for cut && err == nil {
			_, cut, err = src.ReadLine()
		}
		if err != nil {
			return
		}
	}
}

// stop ends the process as the protocol requires: it closes its input, then sends SIGTERM, then
// kills it. It returns when the process and its group have ended. It may be called more than
// once and concurrently.
func (c *child) stop() {
	c.stopping.Do(func() {
		_ = c.stdin.Close()
		if c.ends(grace) {
			return
		}
		terminateGroup(c.command.Process)
		if !c.ends(grace) {
			c.kill()
		}
	})
	<-c.exited
	c.work.Wait()
}

// kill ends the process at once.
func (c *child) kill() {
	select {
	case <-c.exited: // another process may have its id
	default:
		killGroup(c.command.Process)
	}
}

// ends reports whether the process ends within d.
func (c *child) ends(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.exited:
		return true
	case <-timer.C:
		return false
	}
}

// release closes the streams. It must be called after stop, when no goroutine reads them.
func (c *child) release() { closeAll([]*os.File{c.stdin, c.stdout, c.stderr}) }
