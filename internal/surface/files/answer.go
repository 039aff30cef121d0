package files

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

// answer returns the error for the client.
func (h *Handler) answer(err error) error {
	var (
		own      *fault.Error
		fatal    tool.Fatal
		argument *blob.ArgumentError
		limit    *blob.LimitError
		refused  *blob.RefusedError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &fatal):
		reason, _ := fatal.Blocked()
		return &fault.Error{Code: fault.Forbidden, Reason: "outbound_ssrf_blocked", Message: "the outbound policy refuses the endpoint of the bucket: " + reason, Err: err}
	case errors.As(err, &own):
		return err
	case errors.As(err, &argument):
		return fault.New(fault.Invalid, "invalid_value", "%s", argument.Error()).In(argument.Argument)
	case errors.As(err, &limit):
		f := fault.New(fault.Conflict, "cap_reached", "%s", limit.Error())
		f.Setting = limit.Setting
		return f
	case errors.As(err, &refused):
		h.o.Log.Warn("a bucket has not answered a request", "error", refused.Why, "cause", refused.Err)
		return &fault.Error{Code: fault.Upstream, Reason: "bucket_failed", Message: refused.Why, Setting: refused.Setting, Err: err}
	case errors.Is(err, blob.ErrNotFound):
		return fault.New(fault.NotFound, "not_found", "no such file")
	case errors.Is(err, blob.ErrNoBucket), errors.Is(err, blob.ErrDeleted):
		return fault.New(fault.NotFound, "not_found", "no such bucket")
	}
	return err
}

// mayRead returns an error unless the key may read files.
func mayRead(caller caller.Caller) error {
	a := caller.Principal.Access
	if a.AllowsServer(org.BuiltinTools) && a.AllowsTool(builtin.StorageRead) {
		return nil
	}
	return fault.New(fault.Forbidden, "tool_not_allowed", "this key may not use the tool %s of %s, and so not read files; an owner or admin can change its servers and tools", builtin.StorageRead, org.BuiltinTools)
}

// mayWrite returns an error unless the key may write and delete files.
func mayWrite(caller caller.Caller) error {
	a := caller.Principal.Access
	switch {
	case a.ReadOnly:
		return fault.New(fault.Forbidden, "tool_not_allowed", "this key is read_only, and so cannot write or delete files")
	case !a.AllowsServer(org.BuiltinTools) || !a.AllowsTool(builtin.StorageWrite):
		return fault.New(fault.Forbidden, "tool_not_allowed", "this key may not use the tool %s of %s, and so not write or delete files; an owner or admin can change its servers and tools", builtin.StorageWrite, org.BuiltinTools)
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
	f := fault.New(fault.Limited, "too_many_requests", "the org has transferred %d files at the same time for %v; try again when one of them is done", maxTransfers, longestWait)
	f.RetryAfter = time.Second
	return nil, f
}
