package httpd

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// enterAll takes places for the org until it gets no more, and returns how many.
func (c *crowd) enterAll(org string) int {
	n := 0
	for c.enter(org) {
		n++
	}
	return n
}

// K08, R11: one org alone gets two thirds of the places; the next finds room.
func TestOneOrgAloneGetsTwoThirds(t *testing.T) {
	for most, want := range map[int]int{1: 1, 2: 2, 3: 2, 10: 7, 300: 200, 20_000: 13_334} {
		c := &crowd{most: most, of: map[string]int{}}
		if got := c.enterAll("loud"); got != want {
			t.Errorf("of %d places an org got %d, want %d", most, got, want)
		}
		if most > 2 && !c.enter("quiet") {
			t.Errorf("of %d places there was none left for another org", most)
		}
	}
}

// K08, R11: of k orgs that want more than they get, each ends up with 2/(2k+1) of
// the places, whoever was first; the rest is free for those who come with none.
func TestOrgsThatWantMoreGetTheSame(t *testing.T) {
	const most = 600
	r := rand.New(rand.NewPCG(1, 2))
	for _, k := range []int{1, 2, 3, 7} {
		c := &crowd{most: most, of: map[string]int{}}
		for i := range 100 * most {
			org := fmt.Sprint(r.IntN(k))
			if i < most {
				org = "0" // the first one has a long start
			}
			c.enter(org)
			if done := fmt.Sprint(r.IntN(k)); c.of[done] > 0 && r.IntN(3) == 0 { // its requests end
				c.leave(done)
			}
		}
		total := 0
		for org, n := range c.of {
			total += n
			if fair := 2 * most / (2*k + 1); n > fair*11/10 || n < fair*9/10 {
				t.Errorf("%d orgs: org %s has %d places, want about %d", k, org, n, fair)
			}
		}
		if total != c.all || total > most {
			t.Errorf("%d orgs have %d places of %d; it counts %d", k, total, most, c.all)
		}
		if !c.enter("newcomer") {
			t.Errorf("%d orgs have left nothing", k)
		}
	}
}

// Nothing stays of an org that has left.
func TestPlacesAreGivenBack(t *testing.T) {
	c := &crowd{most: 9, of: map[string]int{}}
	for range c.enterAll("o") {
		c.leave("o")
	}
	if c.all != 0 || len(c.of) != 0 {
		t.Errorf("%d places are taken, of %v", c.all, c.of)
	}
}
