//go:build !unix

package mcptool

import (
	"os"
	"syscall"
)

// ownGroup returns nil: there are no process groups here.
func ownGroup() *syscall.SysProcAttr { return nil }

// terminateGroup does nothing: there is no signal for it here.
func terminateGroup(*os.Process) {}

// killGroup kills a child, but not the processes that it has started.
func killGroup(p *os.Process) { _ = p.Kill() }
