package app_test

import (
	"strconv"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/soak"
)

// What go test samples is covered by the seeds 0 to 99 together.
func TestTheSeedsCoverEveryCaseThatIsSampled(t *testing.T) {
	covers(t, providerStories(), 1, providerStory.group)
	covers(t, serverStories(), 2, serverStory.group)
	values := ValuesOfAnOrg()
	covers(t, values, len(values)/6, SettingValue.Group)
}

func covers[T any](t *testing.T, all []T, n int, group func(T) string) {
	t.Helper()
	indexes := make([]int, len(all))
	for i := range indexes {
		indexes[i] = i
	}
	covered := map[int]bool{}
	for seed := range 100 {
		for _, i := range soak.Pick(strconv.Itoa(seed), indexes, n, func(i int) string { return group(all[i]) }) {
			covered[i] = true
		}
	}
	if len(covered) != len(all) {
		t.Errorf("the seeds 0 to 99 choose %d of %d cases of %T", len(covered), len(all), all)
	}
}
