package run

import (
	"strconv"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// P40: the followers of an org are counted over all its runs, and those of
// another org do not notice.
func TestAnOrgHasSoManyFollowers(t *testing.T) {
	f := newFollowers(0)
	key := func(org string, i int) runKey { return runKey{org, strconv.Itoa(i / DefaultFollowers)} }
	for i := range maxOrgFollowers {
		if err := f.enter(key("a", i)); err != nil {
			t.Fatalf("follower %d: %v", i, err)
		}
	}
	if err := f.enter(runKey{"a", "other"}); fault.From(err).Reason != "too_many_followers" {
		t.Errorf("one follower too many: %v", err)
	}
	if err := f.enter(runKey{"b", "1"}); err != nil {
		t.Errorf("another org: %v", err)
	}
	f.leave(runKey{"b", "1"})
	for i := range maxOrgFollowers {
		f.leave(key("a", i))
	}
	if len(f.ofRun)+len(f.ofOrg) != 0 {
		t.Errorf("%v and %v are left", f.ofRun, f.ofOrg)
	}
}
