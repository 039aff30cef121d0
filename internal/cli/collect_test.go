package cli

import "testing"

// The heap grows to 48 MiB while little lives, and garbage is at most as large as what
// lives when much does.
func TestTheRateOfCollectionsFollowsWhatLives(t *testing.T) {
	for _, c := range []struct{ live, stacks, percent int }{
		{0, 1, 300}, // before the first collection
		{1, 0, 700},
		{2, 0, 700},
		{2, 1, 700},
		{4, 2, 433},
		{12, 0, 166},
		{8, 5, 75},
		{13, 0, 75},
		{1000, 0, 75},
	} {
		if got := percentOf(uint64(c.live)<<20, uint64(c.stacks)<<20); got != c.percent {
			t.Errorf("with %d MiB and %d MiB of stacks: %d %%, want %d", c.live, c.stacks, got, c.percent)
		}
	}
}

// Memory is returned only if much lives, and if much of the heap is unused: after that, a quiet
// gateway does not do it again.
func TestMemoryIsReturnedIfMuchIsUnused(t *testing.T) {
	for _, c := range []struct {
		live, stacks, unused int // MiB
		want                 bool
	}{
		{3, 2, 25, false}, // few streams: the next load needs the pages again
		{40, 28, 20, true},
		{10, 6, 5, true},
		{40, 28, 4, false},
		{40, 28, 0, false},
		{10, 6, 3, false},
	} {
		if got := isWorthReturn(uint64(c.live)<<20, uint64(c.stacks)<<20, uint64(c.unused)<<20); got != c.want {
			t.Errorf("%d MiB live, %d MiB of stacks, %d MiB unused: %v, want %v", c.live, c.stacks, c.unused, got, c.want)
		}
	}
}
