package config

import (
	"path/filepath"

	"github.com/goccy/go-yaml/ast"
)

// Relative paths of the file are relative to the file. Every key that holds a path
// is a pathKey, and every reference to a file is a [secret.Text]; both are located
// where they are decoded. Environment variables stay relative to the working
// directory.

// pathKey is a key with the path of a file or directory that the gateway writes or
// reads.
type pathKey struct{ scalar[string] }

func (p pathKey) decode(d *decoder, path string, n ast.Node) {
	p.scalar.decode(d, path, n)
	*p.into = d.locate(*p.into)
}

// locate returns a path of the file as the process has to open it.
func (d *decoder) locate(path string) string {
	if d.dir == "" || path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(d.dir, path)
}

// locateDefaults locates the defaults of the keys, before any is decoded.
func (d *decoder) locateDefaults(keys []key) {
	for _, k := range keys {
		switch v := k.value.(type) {
		case pathKey:
			*v.into = d.locate(*v.into)
		case object:
			d.locateDefaults(v.keys)
		}
	}
}
