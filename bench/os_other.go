//go:build !unix

package main

import (
	"errors"
	"io"
)

// openFiles knows of no limit on this system.
func openFiles() (limit uint64, known bool) { return 0, false }

// lockDatabase is not built for this system.
func lockDatabase(string) (io.Closer, error) {
	return nil, errors.New("the case store needs the file locks of Unix")
}
