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
	grace     = 2 * time.Second // to end after its input was closed, and again after SIGTERM
	lastWords = time.Second     // for what it still had to say when it ended
	maxSaid   = 1 << 10         // bytes of one line on standard error
	maxTail   = 8               // such lines that the report of its end repeats
)

// errStart wraps the failure to start a command.
var errStart = errors.New("command not started")

// exitError says how a child process ended.
type exitError struct {
	status string   // "exit status 3", "signal: killed"
	said   []string // the last lines on its standard error
}

func (e *exitError) Error() string { return "server process ended: " + e.status }

// child is a running command in a process group of its own. When it ends,
// however it does, the rest of its group is killed.
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

// startChild starts a command with exactly the environment env. Stop it.
func startChild(command, env []string, log *slog.Logger) (*child, error) {
	run := exec.Command(command[0], command[1:]...) //nolint:noctx // the end of a context would kill it without asking first
	c := &child{command: run, log: log, exited: make(chan struct{})}
	c.command.Env = env
	c.command.SysProcAttr = ownGroup()
	theirs, err := c.pipes()
	if err == nil {
		started := make(chan error)
		c.work.Go(func() { c.mind(started) })
		err = <-started
	}
	closeAll(theirs) // the child has its own copies
	if err != nil {
		c.work.Wait()
		closeAll([]*os.File{c.stdin, c.stdout, c.stderr})
		return nil, fmt.Errorf("%w: %w", errStart, err)
	}
	c.work.Go(c.listen)
	return c, nil
}

// pipes makes the three streams and returns the child's ends.
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

// mind starts the process and waits for its end. It keeps its thread as long as
// the process lives: the system may end a child together with the thread that
// started it.
func (c *child) mind(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := c.command.Start()
	started <- err
	if err != nil {
		return
	}
	_ = c.command.Wait() // the state says it all
	c.status = c.command.ProcessState.String()
	killGroup(c.command.Process) // nothing that it started outlives it
	end := time.Now().Add(lastWords)
	_ = c.stdout.SetReadDeadline(end) // what left the group may hold the other end
	_ = c.stderr.SetReadDeadline(end)
	close(c.exited)
}

// listen reads standard error: each line goes to the log, the last ones into the
// report of the end.
func (c *child) listen() {
	src := bufio.NewReaderSize(c.stderr, maxSaid)
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

// stop ends the process as the protocol asks for: its input is closed, then it is
// told to end, then it is killed. It returns when the process and its group are
// gone. It may be called more than once, also at the same time.
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
	case <-c.exited: // its number may be another's by now
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

// release closes the streams. Call it after stop, when nobody reads any more.
func (c *child) release() { closeAll([]*os.File{c.stdin, c.stdout, c.stderr}) }
