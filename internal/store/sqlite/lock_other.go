//go:build !unix

package sqlite

import "os"

// lockFile opens the lock file. On this system nothing keeps a second process
// off: whoever runs the gateway starts it once.
func lockFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
}
