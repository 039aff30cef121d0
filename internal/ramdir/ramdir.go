// Package ramdir puts the data of tests into RAM, where an fsync costs nothing. Tests only
// import it. Tests of the disk, of backups and of kills use [testing.T.TempDir].
package ramdir

import (
	"os"
	"testing"
)

// shared is a tmpfs on most Linux systems.
const shared = "/dev/shm"

// least is the free space that a tmpfs needs to be used. Containers often have 64 MiB.
const least = 2 << 30

// New returns a directory that is removed when the test ends. It is in RAM if the system has
// a large enough tmpfs, and t.TempDir() otherwise.
func New(t testing.TB) string {
	t.Helper()
	if freeRAM(shared) < least {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(shared, "turnpike-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("removing the data of the test: %v", err)
		}
	})
	return dir
}
