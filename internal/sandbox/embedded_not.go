//go:build !turnpike_python

package sandbox

// Embedded returns the python.wasm that is in this program, or nil: only the programs of release archives contain it.
func Embedded() []byte { return nil }
