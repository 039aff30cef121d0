//go:build !linux

package childproc

import (
	"os"
	"syscall"
)

// ownGroup returns nil: the child starts no other processes.
func ownGroup() *syscall.SysProcAttr { return nil }

func kill(p *os.Process) { _ = p.Kill() }
