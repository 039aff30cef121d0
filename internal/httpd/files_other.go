//go:build !unix

package httpd

// openFiles returns how many files the process may have open, and whether that
// is known.
func openFiles() (uint64, bool) { return 0, false }
