package files

import (
	"context"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// mayRead returns an error unless the key may read files.
func mayRead(caller caller.Caller) error {
	a := caller.Principal.Access
	if a.AllowsServer(org.BuiltinTools) && a.AllowsTool(builtin.StorageRead) {
		return nil
	}
	return fault.New(fault.Forbidden, "tool_not_allowed", "this key may not use the tool %s of %s, and so not read files; "+
		"an owner or admin can change its servers and tools", builtin.StorageRead, org.BuiltinTools)
}

// mayWrite returns an error unless the key may write and delete files.
func mayWrite(caller caller.Caller) error {
	a := caller.Principal.Access
	switch {
	case a.ReadOnly:
		return fault.New(fault.Forbidden, "tool_not_allowed", "this key is read_only, and so cannot write or delete files")
	case !a.AllowsServer(org.BuiltinTools) || !a.AllowsTool(builtin.StorageWrite):
		return fault.New(fault.Forbidden, "tool_not_allowed", "this key may not use the tool %s of %s, and so not write or delete files; "+
			"an owner or admin can change its servers and tools", builtin.StorageWrite, org.BuiltinTools)
	}
	return nil
}

// How many files an org may upload and download at the same time, and how long more of them wait.
const (
	maxTransfers = 32
	longestWait  = 30 * time.Second
)

// transfers counts the files that each org transfers now. The zero value is empty.
type transfers struct {
	mu   sync.Mutex
	orgs map[string]*places // those with transfers
}

// places are those for the transfers of one org.
type places struct {
	taken chan struct{} // one for each transfer
	used  int           // how many transfers there are, with those that wait
}

// begin waits for a place for one more transfer, which is free again when end is called.
func (t *transfers) begin(ctx context.Context, orgID string) (end func(), err error) {
	t.mu.Lock()
	if t.orgs == nil {
		t.orgs = map[string]*places{}
	}
	p := t.orgs[orgID]
	if p == nil {
		p = &places{taken: make(chan struct{}, maxTransfers)}
		t.orgs[orgID] = p
	}
	p.used++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if p.used--; p.used == 0 {
			delete(t.orgs, orgID)
		}
	}
	wait, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	select {
	case p.taken <- struct{}{}:
		return func() {
			<-p.taken
			leave()
		}, nil
	case <-wait.Done():
	}
	leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f := fault.New(fault.Limited, "too_many_requests", "the org has transferred %d files at the same time for %v; "+
		"try again when one of them is done", maxTransfers, longestWait)
	f.RetryAfter = time.Second
	return nil, f
}
