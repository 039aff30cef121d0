package memlimit

import "sync"

// Account counts the bytes of one request or run. It is safe for concurrent use. A nil
// Account counts nothing and refuses nothing.
type Account struct {
	limiter *Limiter
	org     string

	mu       sync.Mutex
	holders  int   // 0 = closed
	used     int64 // bytes charged
	reserved int64 // bytes reserved from the org; at least used
}

// Acquire counts n bytes. It must be called before they are allocated. If it exceeds a
// limit, it counts nothing and returns a *[Refused]. A closed account refuses every
// charge.
func (a *Account) Acquire(n int) error {
	if a == nil {
		return nil
	}
	if err := a.acquire(int64(n), false); err != nil {
		return err
	}
	return nil
}

// Add counts n bytes without checking a limit. It is for bytes that are already
// retained and are few, or limited elsewhere. It has no effect on a closed account.
func (a *Account) Add(n int) {
	if a != nil {
		_ = a.acquire(int64(n), true)
	}
}

// charge counts n bytes. With force it is refused only if the account is closed.
func (a *Account) acquire(n int64, force bool) *Refused {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch most := a.limiter.run; {
	case a.holders == 0, !force && a.used+n > most:
		return &Refused{Bound: Run, Owner: a.org, Bytes: n, Held: a.used, Limit: most}
	case a.used+n > a.reserved:
		more := (a.used + n - a.reserved + chunk - 1) / chunk * chunk
		if refused := a.limiter.reserve(a.org, more, force); refused != nil {
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
		a.limiter.release(a.org, spare)
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

// Retain adds a holder and returns the account. Each holder must call Close once. Retain
// panics if the account is closed.
func (a *Account) Retain() *Account {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.holders == 0 {
		panic("memlimit: Retain of a closed account")
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
		panic("memlimit: Close of a closed account")
	}
	if a.holders--; a.holders == 0 && a.reserved > 0 {
		a.limiter.release(a.org, a.reserved)
		a.used, a.reserved = 0, 0
	}
}

// Share returns a new share of the account, without charges.
func (a *Account) Share() *Share { return &Share{account: a} }

// Share counts the bytes of one call or buffer of an account. It is safe for concurrent
// use. A nil Part, and a part of a nil account, counts nothing.
type Share struct {
	account *Account

	mu     sync.Mutex
	used   int
	closed bool
}

// Acquire is [Account.Acquire]. A closed share refuses every charge.
func (p *Share) Acquire(n int) error {
	if p == nil || p.account == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return &Refused{Bound: Run, Owner: p.account.org, Bytes: int64(n), Limit: p.account.limiter.run}
	}
	if err := p.account.Acquire(n); err != nil {
		return err
	}
	p.used += n
	return nil
}

// Release is [Account.Release], limited to the bytes charged through the part.
func (p *Share) Release(n int) {
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
func (p *Share) Close() {
	if p == nil || p.account == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.account.Release(p.used)
	p.used = 0
}
