//go:build !linux

package child

// limitSelf sets no limits here: the memory of WebAssembly has one, and the gateway kills the process at the
// end of its time.
func limitSelf() error { return nil }
