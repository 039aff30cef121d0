package sandbox

import "syscall"

// ownGroup returns attributes that start a child in a new process group. The kernel kills the child
// when this process is killed.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
