//go:build unix

package sandbox

import (
	"os"
	"syscall"
)

// killGroup kills a child and the processes of its group. It does nothing if they have ended.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
