package memlimit

import (
	"slices"
	"sync"
)

// lentSizes are the sizes of the buffers that are lent. Larger ones are allocated and not kept.
var lentSizes = []int{8 << 10, 32 << 10, 128 << 10, 512 << 10, 1 << 20}

// lent has a pool for each of lentSizes.
var lent [5]sync.Pool

// lentSize returns the smallest of lentSizes that has room for n bytes, or n.
func lentSize(n int) int {
	if i, _ := slices.BinarySearch(lentSizes, n); i < len(lentSizes) {
		return lentSizes[i]
	}
	return n
}

// newBuffer returns an empty buffer with the capacity n, from a pool if n is one of lentSizes.
func newBuffer(n int) []byte {
	if i, is := slices.BinarySearch(lentSizes, n); is {
		if b, ok := lent[i].Get().(*[]byte); ok {
			return (*b)[:0]
		}
	}
	return make([]byte, 0, n)
}

// Return takes back the result of [ReadLent]. Nothing may refer to it any more.
func Return(data []byte) {
	i, is := slices.BinarySearch(lentSizes, cap(data))
	if !is {
		return
	}
	if poison {
		for data = data[:cap(data)]; len(data) > 0; data = data[:len(data)-1] {
			data[len(data)-1] = 0xDB
		}
	}
	lent[i].Put(&data)
}
