//go:build linux || darwin

package app

import "syscall"

// freeSpace returns how many bytes the process may use on the disk of the path.
func freeSpace(path string) (uint64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return 0, err
	}
	return uint64(s.Bavail) * uint64(s.Bsize), nil //nolint:gosec,unconvert // the types differ between systems
}
