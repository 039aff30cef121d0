//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// openFiles returns how many files a process may open.
func openFiles() (limit uint64, known bool) {
	var l syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l)
	return uint64(l.Max), err == nil //nolint:unconvert // it is signed on FreeBSD
}

// The bytes of FILE-shm that a database in WAL mode uses as locks: one for writers,
// one for checkpoints, one for recovery and five for readers (WAL-mode File Format,
// "WAL Locks", at sqlite.org).
const (
	walLocksAt = 120
	walLocks   = 8
)

// lockDatabase takes all locks of a SQLite file in WAL mode, which keeps every
// other process from reading and writing it, until the result is closed.
// Closing it again does nothing.
func lockDatabase(path string) (io.Closer, error) {
	f, err := os.OpenFile(path+"-shm", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	all := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: walLocksAt, Len: walLocks}
	if err := syscall.FcntlFlock(f.Fd(), syscall.F_SETLKW, &all); err != nil {
		_ = f.Close() // the error of the lock is returned
		return nil, fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	return &lockedFile{f}, nil
}

// lockedFile holds its locks until it is closed.
type lockedFile struct{ *os.File }

// Close gives the locks back.
func (l *lockedFile) Close() error {
	if l.File == nil {
		return nil
	}
	f := l.File
	l.File = nil
	return f.Close()
}
