package ramdir

import "syscall"

const tmpfs = 0x01021994 // TMPFS_MAGIC

// freeRAM returns the free bytes of the tmpfs at path; 0 if there is none.
func freeRAM(path string) uint64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil || s.Type != tmpfs {
		return 0
	}
	return s.Bavail * uint64(s.Bsize) //nolint:gosec // a size is not negative
}
