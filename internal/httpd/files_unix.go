//go:build unix

package httpd

import "syscall"

// openFileLimit returns the process's limit on open files, and whether it is known.
// The Go runtime has already raised the soft limit to the hard limit.
func openFileLimit() (uint64, bool) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return uint64(limit.Cur), err == nil //nolint:unconvert // a signed number on some systems
}
