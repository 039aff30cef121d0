//go:build turnpike_python

package sandbox

import _ "embed"

// embedded is python.wasm. Package release puts the file here while it builds.
//
//go:embed python.wasm
var embedded []byte

// Embedded returns the python.wasm that is in this program. Nobody may change it.
func Embedded() []byte { return embedded }
