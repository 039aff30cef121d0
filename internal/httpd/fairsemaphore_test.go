package httpd

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// acquireAll takes places for the org until it is refused, and returns their number.
func (c *fairSemaphore) acquireAll(org string) int {
	n := 0
	for c.acquire(org) {
		n++
	}
	return n
}

// A single org gets two thirds of the places, and another one still gets one. // K08 R11
func TestASingleOrgGetsTwoThirds(t *testing.T) {
	for most, want := range map[int]int{1: 1, 2: 2, 3: 2, 10: 7, 300: 200, 20_000: 13_334} {
		c := &fairSemaphore{limit: most, byOrg: map[string]int{}}
		if got := c.acquireAll("loud"); got != want {
			t.Errorf("of %d places an org got %d, want %d", most, got, want)
		}
		if most > 2 && !c.acquire("quiet") {
			t.Errorf("of %d places none was left for another org", most)
		}
	}
}

// Of k orgs that want more than they get, each converges to 2/(2k+1) of
// the places, whatever the order of arrival. The rest stays free. // K08 R11
func TestBusyOrgsGetEqualShares(t *testing.T) {
	const most = 600
	r := rand.New(rand.NewPCG(1, 2))
	for _, k := range []int{1, 2, 3, 7} {
		c := &fairSemaphore{limit: most, byOrg: map[string]int{}}
		for i := range 100 * most {
			org := fmt.Sprint(r.IntN(k))
			if i < most {
				org = "0" // the first org has a head start
			}
			c.acquire(org)
			if done := fmt.Sprint(r.IntN(k)); c.byOrg[done] > 0 && r.IntN(3) == 0 { // one of its requests ends
				c.release(done)
			}
		}
		total := 0
		for org, n := range c.byOrg {
			total += n
			if fair := 2 * most / (2*k + 1); n > fair*11/10 || n < fair*9/10 {
				t.Errorf("%d orgs: org %s has %d places, want about %d", k, org, n, fair)
			}
		}
		if total != c.used || total > most {
			t.Errorf("%d orgs have %d places of %d; it counts %d", k, total, most, c.used)
		}
		if !c.acquire("newcomer") {
			t.Errorf("%d orgs have left no place", k)
		}
	}
}

// An org without requests leaves no state.
func TestPlacesAreReturned(t *testing.T) {
	c := &fairSemaphore{limit: 9, byOrg: map[string]int{}}
	for range c.acquireAll("o") {
		c.release("o")
	}
	if c.used != 0 || len(c.byOrg) != 0 {
		t.Errorf("%d places are taken, of %v", c.used, c.byOrg)
	}
}
