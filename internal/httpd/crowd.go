package httpd

import "sync"

// crowd limits the model requests in progress and divides them fairly among orgs.
// An org may start another request while it has fewer than twice as many as there
// are free places. A single org therefore never holds more than 2/3 of the places.
// Of k orgs that want more than they get, each holds at most 2/(2k+1), and 1/(2k+1)
// stays free for an org that has none.
type crowd struct {
	most int

	mu  sync.Mutex
	all int
	of  map[string]int // by org; an org with none has no entry
}

// enter takes a place for the org. It returns false if there is none for it.
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

// leave returns a place of the org. It is called once for each successful enter.
func (c *crowd) leave(org string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all--
	if c.of[org]--; c.of[org] == 0 {
		delete(c.of, org)
	}
}
