package httpd

import "sync"

// crowd counts the requests for a model that are under way, of which there may
// be so many. An org gets another one only while it has fewer than twice as many
// as there are places left. So one org alone never has more than two thirds of
// them, of k that want more than they get none has more than 2/(2k+1), and who
// comes with none finds 1/(2k+1) free.
type crowd struct {
	most int

	mu  sync.Mutex
	all int
	of  map[string]int // by org; only those that have some
}

// enter takes a place for the org; false if there is none for it.
func (c *crowd) enter(org string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	has := c.of[org]
	if has >= 2*(c.most-c.all) {
		return false
	}
	c.all++
	c.of[org] = has + 1
	return true
}

// leave gives a place of the org back.
func (c *crowd) leave(org string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.of[org]--; c.of[org] == 0 {
		delete(c.of, org)
	}
}
