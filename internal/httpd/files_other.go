//go:build !unix

package httpd

// openFileLimit returns the process's limit on open files, and whether it is known.
func openFileLimit() (uint64, bool) { return 0, false }
