//go:build !unix

package mcptool

import (
	"os"
	"syscall"
)

// ownGroup returns nil: there are no process groups here.
func ownGroup() *syscall.SysProcAttr { return nil }

// terminateGroup does nothing: there is no way to ask.
func terminateGroup(*os.Process) {}

// killGroup ends a child; what it started sees its input closed.
func killGroup(p *os.Process) { _ = p.Kill() }
