// Package ledger counts the bytes that the gateway retains for its callers.
//
// Request bodies, results of tools, turns of models, journals that are read back
// and buffers are charged before they are read or parsed, and released when they
// are freed. A charge beyond a bound is refused with an error that says which.
//
//	Ledger         the process: one bound for everything that is charged
//	  └─ org       its share: at most twice what the process has left
//	       └─ Account   one request or run: a fixed bound
//	            └─ Part one call or buffer of it, released as a whole
//
// The share is the rule of max_requests: one org alone gets two thirds of the
// process's bytes, of k orgs that want more than they get none has more than
// 2/(2k+1), and an org that holds nothing finds 1/(2k+1) free.
//
//	account := l.Open("acme")
//	defer account.Close() // releases what is still charged
//	if err := account.Charge(64 << 10); err != nil {
//		return err // a *Refused, which unwraps to a *fault.Error for the caller
//	}
//
// An account takes bytes from its org in grains and keeps a few in stock, so that
// most charges touch no lock but the account's own, which nobody else contends
// for. What is counted is what the gateway decides to keep: stacks, buffers of
// connections and the collector's garbage are not. max_connections, max_requests
// and the overload check bound those.
package ledger

import (
	"cmp"
	"sync"
)

// The defaults, in bytes.
const (
	DefaultProcess = 1 << 30
	DefaultRun     = 64 << 20 // P40
)

const (
	grain = 8 << 10   // an account takes bytes in multiples of it
	stock = 8 * grain // and keeps at most this many more than it uses
)

// Options are the bounds of a Ledger.
type Options struct {
	Process int64 // bytes of all orgs together; 0 = DefaultProcess
	Run     int64 // bytes of one account; 0 = DefaultRun
}

// Ledger is the account of the process. It is safe for concurrent use. A nil
// Ledger opens nil accounts, which count nothing.
type Ledger struct {
	process, run int64

	mu   sync.Mutex
	held int64
	orgs map[string]int64 // bytes by org; only orgs that hold some
}

// New returns an empty ledger.
func New(o Options) *Ledger {
	return &Ledger{process: cmp.Or(o.Process, DefaultProcess), run: cmp.Or(o.Run, DefaultRun), orgs: map[string]int64{}}
}

// Open returns an account for one request or run of the org, with one holder.
func (l *Ledger) Open(org string) *Account {
	if l == nil {
		return nil
	}
	return &Account{ledger: l, org: org, holders: 1}
}

// Held returns how many bytes the process has charged.
func (l *Ledger) Held() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held
}

// HeldBy returns how many bytes the org has charged.
func (l *Ledger) HeldBy(org string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.orgs[org]
}

// take charges n bytes to the org. If sure, it is never refused.
func (l *Ledger) take(org string, n int64, sure bool) *Refused {
	l.mu.Lock()
	defer l.mu.Unlock()
	has, left := l.orgs[org], l.process-l.held-n
	switch {
	case sure:
	case left < 0:
		return &Refused{Bound: Process, Owner: org, Bytes: n, Held: l.held, Limit: l.process}
	case has+n > 2*left:
		return &Refused{Bound: Org, Owner: org, Bytes: n, Held: has, Limit: l.process}
	}
	l.held += n
	l.orgs[org] = has + n
	return nil
}

// give releases n bytes of the org.
func (l *Ledger) give(org string, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held -= n
	if l.orgs[org] -= n; l.orgs[org] == 0 {
		delete(l.orgs, org)
	}
}
