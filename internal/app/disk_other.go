//go:build !linux && !darwin

package app

import "errors"

// freeSpace returns an error: it is not known how to ask this system.
func freeSpace(string) (uint64, error) { return 0, errors.ErrUnsupported }
