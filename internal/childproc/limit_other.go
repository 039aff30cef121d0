//go:build !linux

package childproc

// LimitSelf sets no limits here. The gateway kills the process at the end of its time.
func LimitSelf(Limits) error { return nil }
