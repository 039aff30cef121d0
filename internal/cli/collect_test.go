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
