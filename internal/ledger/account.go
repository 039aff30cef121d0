package ledger

import "sync"

// Account is what one request or run retains. It is safe for concurrent use. A
// nil Account counts nothing and refuses nothing.
type Account struct {
	ledger *Ledger
	org    string

	mu      sync.Mutex
	holders int   // 0 = closed
	used    int64 // bytes that are charged
	taken   int64 // bytes that were taken from the org: used and the stock
}

// Charge counts n bytes that are about to be retained. The error is a *[Refused];
// nothing was counted then. A closed account refuses everything.
func (a *Account) Charge(n int) error {
	if a == nil {
		return nil
	}
	if err := a.charge(int64(n), false); err != nil {
		return err
	}
	return nil
}

// Add counts n bytes that are retained already and small, or bounded elsewhere.
// It is not refused.
func (a *Account) Add(n int) {
	if a != nil {
		_ = a.charge(int64(n), true)
	}
}

func (a *Account) charge(n int64, sure bool) *Refused {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch most := a.ledger.run; {
	case a.holders == 0, !sure && a.used+n > most:
		return &Refused{Bound: Run, Owner: a.org, Bytes: n, Held: a.used, Limit: most}
	case a.used+n > a.taken:
		more := (a.used + n - a.taken + grain - 1) / grain * grain
		if refused := a.ledger.take(a.org, more, sure); refused != nil {
			return refused
		}
		a.taken += more
	}
	a.used += n
	return nil
}

// Release takes n bytes back that were charged: no more than are charged.
func (a *Account) Release(n int) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.holders == 0 {
		return // Close has released everything
	}
	a.used -= min(int64(n), a.used)
	if spare := (a.taken - a.used) / grain * grain; spare > stock {
		a.ledger.give(a.org, spare)
		a.taken -= spare
	}
}

// Used returns how many bytes are charged.
func (a *Account) Used() int64 {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}

// Hold returns the account with one more holder, which calls Close, too. The
// account must be open.
func (a *Account) Hold() *Account {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.holders == 0 {
		panic("ledger: a closed account is held")
	}
	a.holders++
	return a
}

// Close ends the use of one holder. The last one releases everything.
func (a *Account) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.holders == 0 {
		panic("ledger: an account is closed twice")
	}
	if a.holders--; a.holders == 0 && a.taken > 0 {
		a.ledger.give(a.org, a.taken)
		a.used, a.taken = 0, 0
	}
}

// Part returns an empty part of the account.
func (a *Account) Part() *Part { return &Part{account: a} }

// Part is what one call or buffer of an account retains. It is safe for
// concurrent use. A nil Part, and one of a nil account, counts nothing.
type Part struct {
	account *Account

	mu     sync.Mutex
	used   int
	closed bool
}

// Charge is [Account.Charge]. A closed part refuses everything.
func (p *Part) Charge(n int) error {
	if p == nil || p.account == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return &Refused{Bound: Run, Owner: p.account.org, Bytes: int64(n), Limit: p.account.ledger.run}
	}
	if err := p.account.Charge(n); err != nil {
		return err
	}
	p.used += n
	return nil
}

// Release is [Account.Release]. It releases no more than the part has charged.
func (p *Part) Release(n int) {
	if p == nil || p.account == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n = min(n, p.used)
	p.used -= n
	p.account.Release(n)
}

// Close releases everything that the part has charged. It may be called more
// than once.
func (p *Part) Close() {
	if p == nil || p.account == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.account.Release(p.used)
	p.used = 0
}
