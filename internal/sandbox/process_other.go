//go:build !unix

package sandbox

import (
	"os"
	"syscall"
)

// ownGroup returns nil: there are no process groups here.
func ownGroup() *syscall.SysProcAttr { return nil }

// killGroup kills a child, which has not started others: the drivers that could do so need Linux.
func killGroup(p *os.Process) { _ = p.Kill() }
