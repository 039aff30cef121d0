//go:build !unix

package httpd

// openFiles returns the process's limit on open files, and whether it is known.
func openFiles() (uint64, bool) { return 0, false }
