// Package memlimit limits the memory that the gateway retains for requests and runs.
//
// Request bodies, tool results, model turns, replayed journals and buffers are charged
// before they are read or parsed, and released when they are freed. A charge that
// exceeds a limit is refused with a *[Refused].
//
//	Limiter         the process: one limit for all charges
//	  └─ org       at most twice the bytes that the process has left
//	       └─ Account   one request or run: a fixed limit
//	            └─ Part one call or buffer of it, released as a whole
//
// The limit of an org is that of max_requests. A single org gets at most 2/3 of the
// process's bytes. If k orgs each charge as much as they can, each gets at most
// 2/(2k+1), and 1/(2k+1) remains for an org without charges.
//
//	account := l.Open("acme")
//	defer account.Close() // releases what is still charged
//	if err := account.Charge(64 << 10); err != nil {
//		return err // a *Refused, which unwraps to a *fault.Error for the caller
//	}
//
// An account reserves bytes of its org in chunks, so most charges acquire only the
// account's own lock. Stacks, connection buffers and garbage that is not collected are
// not counted. max_connections, max_requests and the overload check limit those.
package memlimit

import (
	"cmp"
	"sync"
)

// The defaults, in bytes.
const (
	DefaultProcess = 1 << 30
	DefaultRun     = 64 << 20
)

const (
	chunk    = 8 << 10   // accounts reserve multiples of it
	maxSpare = 8 * chunk // bytes that an account may keep reserved and unused
)

// Options are the limits of a Limiter.
type Options struct {
	Process int64 // bytes of all orgs together; 0 = DefaultProcess
	Run     int64 // bytes of one account; 0 = DefaultRun
}

// Limiter counts the bytes of the process. It is safe for concurrent use. A nil Ledger
// opens nil accounts, which count nothing.
type Limiter struct {
	process, run int64

	mu   sync.Mutex       // acquired after the lock of an Account
	held int64            // sum of orgs
	orgs map[string]int64 // bytes by org, never 0
}

// New returns a Limiter without charges.
func New(o Options) *Limiter {
	return &Limiter{process: cmp.Or(o.Process, DefaultProcess), run: cmp.Or(o.Run, DefaultRun), orgs: map[string]int64{}}
}

// Open returns an account for one request or run of the org, with one holder.
func (l *Limiter) Open(org string) *Account {
	if l == nil {
		return nil
	}
	return &Account{limiter: l, org: org, holders: 1}
}

// Held returns the bytes reserved by all accounts.
func (l *Limiter) Held() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// HeldBy returns the bytes reserved by the accounts of the org.
func (l *Limiter) HeldBy(org string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.orgs[org]
}

// reserve reserves n bytes for the org. With force it is never refused.
func (l *Limiter) reserve(org string, n int64, force bool) *Refused {
	l.mu.Lock()
	defer l.mu.Unlock()
	has, left := l.orgs[org], l.process-l.held-n
	switch {
	case force:
	case left < 0:
		return &Refused{Bound: Process, Owner: org, Bytes: n, Held: l.held, Limit: l.process}
	case has+n > 2*left:
		return &Refused{Bound: Org, Owner: org, Bytes: n, Held: has, Limit: l.process}
	}
	l.held += n
	l.orgs[org] = has + n
	return nil
}

// release releases n reserved bytes of the org.
func (l *Limiter) release(org string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held -= n
	if l.orgs[org] -= n; l.orgs[org] == 0 {
		delete(l.orgs, org)
	}
}
