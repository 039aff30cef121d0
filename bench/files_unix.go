//go:build unix

package main

import "syscall"

// openFiles returns how many files a process may open.
func openFiles() (limit uint64, known bool) {
	var l syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	return uint64(l.Max), err == nil //nolint:unconvert // it is signed on FreeBSD
}
