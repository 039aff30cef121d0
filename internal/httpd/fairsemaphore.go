package httpd

import "sync"

// fairSemaphore limits the model requests in progress and divides them fairly among orgs.
// An org may start another request while it has fewer than twice as many as there
// are free places. A single org therefore never holds more than 2/3 of the places.
// Of k orgs that want more than they get, each holds at most 2/(2k+1), and 1/(2k+1)
// stays free for an org that has none.
type fairSemaphore struct {
	limit int

	mu    sync.Mutex
	used  int
	byOrg map[string]int // noteCaller org; an org with none has no entry
}

// acquire takes a place for the org. It returns false if there is none for it.
func (c *fairSemaphore) acquire(org string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	has := c.byOrg[org]
	if has >= 2*(c.limit-c.used) {
		return false
	}
	c.used++
	c.byOrg[org] = has + 1
	return true
}

// release returns a place of the org. It is called once for each successful acquire.
func (c *fairSemaphore) release(org string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.used--
	if c.byOrg[org]--; c.byOrg[org] == 0 {
		delete(c.byOrg, org)
	}
}
