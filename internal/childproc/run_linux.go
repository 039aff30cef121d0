package childproc

import (
	"os"
	"syscall"
)

// ownGroup returns attributes that start a child in a process group of its own. The kernel kills it when this
// process is killed.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

func kill(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
