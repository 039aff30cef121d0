package cli

import "testing"

// The heap grows to 48 MiB while little lives, and garbage is at most as large as what
// lives when much does.
func TestTheRateOfCollectionsFollowsWhatLives(t *testing.T) {
	for _, c := range []struct{ live, stacks, percent int }{
		{0, 1, 300}, // before the first collection
		{1, 0, 900},
		{2, 0, 900},
		{2, 1, 900},
		{4, 2, 700},
		{12, 0, 300},
		{8, 5, 100},
		{13, 0, 100},
		{1000, 0, 100},
	} {
		if got := percentOf(uint64(c.live)<<20, uint64(c.stacks)<<20); got != c.percent {
			t.Errorf("with %d MiB and %d MiB of stacks: %d %%, want %d", c.live, c.stacks, got, c.percent)
		}
	}
}
