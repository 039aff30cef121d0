//go:build unix && !linux

package sandbox

import "syscall"

// ownGroup returns attributes that start a child in a new process group.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
