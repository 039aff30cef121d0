//go:build race

package sse

// overwrite makes a slice of an event that is used after Release fail its test.
func (b *buffers) overwrite() {
	for _, s := range [][]byte{b.buf, b.name, b.data} {
		s = s[:cap(s)]
		for i := range s {
			s[i] = 0xdb
		}
	}
}
