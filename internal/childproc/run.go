// Package childproc runs commands of this program in child processes, so that what strangers have made is read outside of
// the gateway: they have no environment, and limits on memory, time and output.
package childproc

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"time"
)

// Refused is the exit status of a child whose standard error says why, in words for the model.
const Refused = 3

// Command returns a command that starts the program, and arguments before those of it, in a process group of its own.
func Command(program []string, arguments ...string) *exec.Cmd {
	c := exec.Command(program[0], slices.Concat(program[1:], arguments)...) //nolint:gosec,noctx // the gateway's own program, which Run kills
	c.Env, c.Dir = []string{"TMPDIR=" + os.TempDir()}, os.TempDir()
	c.SysProcAttr = ownGroup()
	c.WaitDelay = time.Second // for the pipes, if somebody else has them
	return c
}

// Run runs a command until it ends, or kills it when ctx ends. It keeps its thread: on Linux a process with a
// parent death signal is killed when the thread that started it ends.
func Run(ctx context.Context, c *exec.Cmd) error {
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.Start()
		started <- err
		if err == nil {
			ended <- c.Wait()
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		kill(c.Process)
		return <-ended
	}
}

// Buffer keeps the beginning of what is written, and takes the rest, so that the writer ends.
type Buffer struct {
	bytes.Buffer
	Most int // bytes
}

func (b *Buffer) Write(p []byte) (int, error) {
	_, _ = b.Buffer.Write(p[:min(len(p), b.Most-b.Len())])
	return len(p), nil
}

// ReadFrom hides that of [bytes.Buffer], which has no limit.
func (b *Buffer) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{b}, r)
}

// Limits are limits of a child. Only Linux has them.
type Limits struct {
	AddressSpace uint64 // bytes
	CPUSeconds   uint64
	FileSize     uint64 // bytes of a file that it writes
}
