//go:build unix

package mcptool

import (
	"os"
	"syscall"
)

// terminateGroup sends SIGTERM to a child and the processes that it has started.
func terminateGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGTERM) }

// killGroup kills a child and the processes that it has started. It does nothing if they have
// ended.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
