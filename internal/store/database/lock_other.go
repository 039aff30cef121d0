//go:build !unix

package database

import "os"

// lockFile opens the lock file without locking it: this system has no flock. The
// operator must not start two processes on one file.
func lockFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}
