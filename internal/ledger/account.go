package ledger

import "sync"

// Account counts the bytes of one request or run. It is safe for concurrent use. A nil
// Account counts nothing and refuses nothing.
type Account struct {
	ledger *Ledger
	org    string

	mu       sync.Mutex
	holders  int   // 0 = closed
	used     int64 // bytes charged
	reserved int64 // bytes reserved from the org; at least used
}

// Charge counts n bytes. It must be called before they are allocated. If it exceeds a
// limit, it counts nothing and returns a *[Refused]. A closed account refuses every
// charge.
func (a *Account) Charge(n int) error {
	if a == nil {
		return nil
	}
	if err := a.charge(int64(n), false); err != nil {
		return err
	}
	return nil
}

// Add counts n bytes without checking a limit. It is for bytes that are already
// retained and are few, or limited elsewhere. It has no effect on a closed account.
func (a *Account) Add(n int) {
	if a != nil {
		_ = a.charge(int64(n), true)
	}
}

// charge counts n bytes. With force it is refused only if the account is closed.
func (a *Account) charge(n int64, force bool) *Refused {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch most := a.ledger.run; {
	case a.holders == 0, !force && a.used+n > most:
		return &Refused{Bound: Run, Owner: a.org, Bytes: n, Held: a.used, Limit: most}
	case a.used+n > a.reserved:
		more := (a.used + n - a.reserved + chunk - 1) / chunk * chunk
		if refused := a.ledger.reserve(a.org, more, force); refused != nil {
			return refused
		}
		a.reserved += more
	}
	a.used += n
	return nil
}

// Release releases n charged bytes, or all if fewer are charged.
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
	if spare := (a.reserved - a.used) / chunk * chunk; spare > maxSpare {
		a.ledger.release(a.org, spare)
		a.reserved -= spare
	}
}

// Used returns the bytes charged.
func (a *Account) Used() int64 {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}

// Hold adds a holder and returns the account. Each holder must call Close once. Hold
// panics if the account is closed.
func (a *Account) Hold() *Account {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.holders == 0 {
		panic("ledger: Hold of a closed account")
	}
	a.holders++
	return a
}

// Close removes a holder. The last one releases all bytes. Close panics if the account
// is already closed.
func (a *Account) Close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.holders == 0 {
		panic("ledger: Close of a closed account")
	}
	if a.holders--; a.holders == 0 && a.reserved > 0 {
		a.ledger.release(a.org, a.reserved)
		a.used, a.reserved = 0, 0
	}
}

// Part returns a new part of the account, without charges.
func (a *Account) Part() *Part { return &Part{account: a} }

// Part counts the bytes of one call or buffer of an account. It is safe for concurrent
// use. A nil Part, and a part of a nil account, counts nothing.
type Part struct {
	account *Account

	mu     sync.Mutex
	used   int
	closed bool
}

// Charge is [Account.Charge]. A closed part refuses every charge.
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

// Release is [Account.Release], limited to the bytes charged through the part.
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

// Close releases all bytes charged through the part. It may be called more than once.
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
