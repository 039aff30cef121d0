//go:build unix

package httpd

import "syscall"

// openFiles returns how many files the process may have open, and whether that
// is known. The runtime has raised it to what the system allows.
func openFiles() (uint64, bool) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return uint64(limit.Cur), err == nil //nolint:unconvert // a signed number on some systems
}
