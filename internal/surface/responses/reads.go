package responses

import (
	"context"
	"sync"
)

// reads limits how much of what is stored is read at a time: one response, or one part of a
// conversation, for each org. What is read has up to three times the size of its request, and
// most of it is dropped before the answer begins: so the readers of an org, however many there
// are and however slowly they read, hold the memory of one. The zero value is ready.
type reads struct {
	mu    sync.Mutex
	byOrg map[string]*reading
}

// reading is the turn of an org's readers.
type reading struct {
	users int           // that have it, or wait for it
	turn  chan struct{} // has one element while a reader has it
}

// do calls read when it is the org's turn. It returns the cause of ctx if that ends before.
func (r *reads) do(ctx context.Context, org string, read func() error) error {
	one := r.enter(org)
	defer r.leave(org, one)
	select {
	case one.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-one.turn }()
	return read()
}

func (r *reads) enter(org string) *reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.byOrg[org]
	if one == nil {
		if r.byOrg == nil {
			r.byOrg = map[string]*reading{}
		}
		one = &reading{turn: make(chan struct{}, 1)}
		r.byOrg[org] = one
	}
	one.users++
	return one
}

func (r *reads) leave(org string, one *reading) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one.users--; one.users == 0 {
		delete(r.byOrg, org)
	}
}
