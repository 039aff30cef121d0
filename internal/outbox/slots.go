package outbox

import (
	"slices"
	"sync"
)

// receiver is who gets messages: a webhook or a hook of an org.
type receiver struct{ org, name string }

func compareReceivers(a, b receiver) int {
	return slices.Compare([]string{a.org, a.name}, []string{b.org, b.name})
}

// slots bound the attempts in progress: of a receiver, of an org, and of the process.
type slots struct {
	perReceiver, perOrg, perProcess int

	last receiver // that was asked for messages last; owned by the caller of reserve

	mu    sync.Mutex // guards the fields below
	busy  map[receiver]int
	ofOrg map[string]int
	all   int
}

func newSlots(perReceiver, perOrg, perProcess int) *slots {
	return &slots{perReceiver: perReceiver, perOrg: perOrg, perProcess: perProcess, busy: map[receiver]int{}, ofOrg: map[string]int{}}
}

// reserved says how many messages of a receiver may be sent now.
type reserved struct {
	receiver
	max int
}

// reserve returns how many messages of the receivers, which are ordered, may be sent now, and counts them as
// busy. It begins after the receiver that was asked last, so that all have their turn.
func (s *slots) reserve(due []receiver) (asks []reserved) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begin, found := slices.BinarySearchFunc(due, s.last, compareReceivers)
	if found {
		begin++
	}
	for i := range due {
		r := due[(begin+i)%len(due)]
		n := min(s.perReceiver-s.busy[r], s.perOrg-s.ofOrg[r.org], s.perProcess-s.all)
		if n <= 0 {
			continue
		}
		s.count(r, n)
		asks = append(asks, reserved{r, n})
		s.last = r
	}
	return asks
}

// count changes the number of attempts in progress. It is called with mu held.
func (s *slots) count(r receiver, n int) {
	s.all += n
	if s.busy[r] += n; s.busy[r] == 0 {
		delete(s.busy, r)
	}
	if s.ofOrg[r.org] += n; s.ofOrg[r.org] == 0 {
		delete(s.ofOrg, r.org)
	}
}

// release gives back what was reserved, but for the messages that were claimed.
func (s *slots) release(asks []reserved, claimed []receiver) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ask := range asks {
		s.count(ask.receiver, -ask.max)
	}
	for _, r := range claimed {
		s.count(r, 1)
	}
}

// end says that an attempt has ended.
func (s *slots) end(r receiver) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(r, -1)
}
