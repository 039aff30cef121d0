package sqlite

import (
	"math/bits"
	"slices"
	"testing"
)

func TestPartsOfAnInsert(t *testing.T) {
	for n := range 3*insertBatch + 2 {
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		var joined []int
		for part := range insertParts(all) {
			if size := len(part); size > insertBatch || bits.OnesCount(uint(size)) != 1 {
				t.Fatalf("of %d elements, a part has %d", n, size)
			}
			joined = append(joined, part...)
		}
		if !slices.Equal(joined, all) {
			t.Fatalf("the parts of %v are %v", all, joined)
		}
	}
}
