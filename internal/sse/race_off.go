//go:build !race

package sse

func (*buffers) overwrite() {}
