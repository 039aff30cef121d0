//go:build unix

package mcptool

import (
	"os"
	"syscall"
)

// terminateGroup asks a child and what it started to end.
func terminateGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGTERM) }

// killGroup ends a child and what it started. It does nothing where they have
// ended.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
