//go:build !unix

package main

import (
	"errors"
	"io"
)

// lockDatabase is not built for this system.
func lockDatabase(string) (io.Closer, error) {
	return nil, errors.New("the case store needs the file locks of Unix")
}
