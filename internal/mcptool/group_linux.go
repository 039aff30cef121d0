package mcptool

import "syscall"

// ownGroup puts a child into a process group of its own. The system kills it
// when this process is killed.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
