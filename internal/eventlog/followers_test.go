package eventlog

import (
	"strconv"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
)

// The followers of an org are counted over all its runs, and those of
// another org do not notice. // P40
func TestAnOrgHasSoManyFollowers(t *testing.T) {
	f := NewFollowers(0)
	key := func(org string, i int) journal.RunKey {
		return journal.RunKey{Org: org, Run: strconv.Itoa(i / DefaultFollowers)}
	}
	for i := range maxOrgFollowers {
		if err := f.Enter(key("a", i)); err != nil {
			t.Fatalf("follower %d: %v", i, err)
		}
	}
	if err := f.Enter(journal.RunKey{Org: "a", Run: "other"}); fault.From(err).Reason != "too_many_followers" {
		t.Errorf("one follower too many: %v", err)
	}
	if err := f.Enter(journal.RunKey{Org: "b", Run: "1"}); err != nil {
		t.Errorf("another org: %v", err)
	}
	f.Leave(journal.RunKey{Org: "b", Run: "1"})
	for i := range maxOrgFollowers {
		f.Leave(key("a", i))
	}
	if len(f.ofRun)+len(f.ofOrg) != 0 {
		t.Errorf("%v and %v are left", f.ofRun, f.ofOrg)
	}
}
