package pdf

import (
	"context"
	"os/exec"
	"runtime"
)

// run runs a command until it ends, or kills it when ctx ends. It keeps its thread: on Linux a process with a
// parent death signal is killed when the thread that started it ends.
func run(ctx context.Context, c *exec.Cmd) error {
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
