//go:build !linux

package sandbox

import (
	"context"
	"errors"
)

// hostPython is a driver that needs Linux.
type hostPython struct {
	name    string
	program []string
	dir     string
}

var errNeedsLinux = errors.New("it needs Linux")

// Name implements [Driver].
func (d hostPython) Name() string { return d.name }

// Languages implements [Driver].
func (d hostPython) Languages() []Language { return []Language{Python} }

// Check implements [Driver].
func (d hostPython) Check(context.Context) error { return errNeedsLinux }

// Start implements [Driver].
func (d hostPython) Start(context.Context, Language, string) (Interpreter, error) {
	return nil, errNeedsLinux
}
