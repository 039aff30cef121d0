//go:build !linux

package pdf

import (
	"os"
	"syscall"
)

// ownGroup returns nil: the child starts no other processes.
func ownGroup() *syscall.SysProcAttr { return nil }

func kill(p *os.Process) { _ = p.Kill() }
