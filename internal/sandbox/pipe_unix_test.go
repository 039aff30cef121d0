//go:build unix

package sandbox_test

import (
	"os"
	"path/filepath"
	"syscall"
)

// makePipe makes a pipe that nobody writes to.
func makePipe(dir *os.Root, name string) error {
	return syscall.Mkfifo(filepath.Join(dir.Name(), name), 0o600)
}
