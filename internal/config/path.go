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
	*p.into = d.locate(path, *p.into)
}

// locate returns a path of the file as the process has to open it.
func (d *decoder) locate(key, path string) string {
	if d.dir == "" || path == "" || filepath.IsAbs(path) {
		return path
	}
	located := filepath.Join(d.dir, path)
	d.moved[key] = Moved{Key: key, Old: path, New: located}
	return located
}

// locateDefaults locates the defaults of the keys, before any is decoded.
func (d *decoder) locateDefaults(path string, keys []key) {
	for _, k := range keys {
		switch v := k.value.(type) {
		case pathKey:
			*v.into = d.locate(join(path, k.name), *v.into)
		case object:
			d.locateDefaults(join(path, k.name), v.keys)
		}
	}
}

// Moved is a path of the file that was relative to the working directory in
// release 0.1, and is relative to the file now.
type Moved struct{ Key, Old, New string }

// Moved returns what the key's path was in release 0.1, if that was another one.
func (c *Config) Moved(key string) (Moved, bool) {
	m, ok := c.moved[key]
	return m, ok
}

// File returns the name of the configuration file; "" where there is none.
func (c *Config) File() string {
	if c.moved == nil {
		return ""
	}
	return c.file
}
