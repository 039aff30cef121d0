package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Segments are the stored parts of conversations that runs store. Its methods may be called at the same time.
type Segments struct{ r *Runner }

// Segments returns the segments that runs store.
func (r *Runner) Segments() Segments { return Segments{r} }

// Unfinished is a run whose segment is not stored yet: it has not ended, and does not wait for approvals.
type Unfinished struct {
	RunID  string
	Part   int // of the run, from 0
	Keep   StoreOptions
	Queued bool // the run has not begun
}

// Unfinished returns the run that will store a segment of the caller's org, or nil if the org
// has no such run, or one that has ended, whose segment was deleted or has an owner, or that stores none.
// A run that has waited for approvals has stored its first one. What it reads is charged to the
// caller's account.
func (s Segments) Unfinished(ctx context.Context, caller caller.Caller, id string) (*Unfinished, error) {
	return unfinishedSegment(ctx, s.r.o.Archive, caller.Org.ID, "", caller.Account, id)
}

// unfinishedSegment does what [Segments.Unfinished] says, for the segments of an owner; "" = those that have
// none.
func unfinishedSegment(ctx context.Context, archive journal.Archive, orgID, owner string, account *memlimit.Account,
	id string) (*Unfinished, error) {
	for _, may := range conversation.MayBe(id) {
		u := Unfinished{RunID: may.Run, Part: may.Part}
		head, err := archive.Head(ctx, orgID, u.RunID)
		switch {
		case errors.Is(err, org.ErrNotFound):
			continue
		case err != nil:
			return nil, journal.ReadError(u.RunID, err)
		case head.Summary.Status == journal.Done:
			return nil, nil
		}
		state, err := journal.Fold(ctx, archive, account, orgID, u.RunID, loop.State{}, nil)
		if err != nil {
			return nil, journal.ReadError(u.RunID, err)
		}
		c := state.Cancelled
		if state.Parks != u.Part || u.Part > 0 && len(undecided(state)) > 0 || c != nil && journal.GoneReason(*c) == loop.Deleted {
			return nil, nil
		}
		keep, err := storeOptionsOf(ctx, archive, orgID, account, u, head.Summary.Grade)
		if keep == nil || keep.Owner != owner || err != nil {
			return nil, err
		}
		u.Keep, u.Queued = *keep, head.Summary.Status == journal.Queued
		return &u, nil
	}
	return nil, nil
}

// notEnded returns the error of a request that continues a segment which is not stored: conflict if
// the run that stores it has not ended, and otherwise that it is not stored. again says that it has
// ended meanwhile.
func (o *Options) notEnded(ctx context.Context, req *Request) (again bool, err error) {
	from := req.Continues
	u, err := unfinishedSegment(ctx, o.Archive, req.Org, "", req.Account, from.ID)
	if err != nil {
		return false, err
	}
	if u == nil {
		kept, err := conversation.FindSegment(ctx, o.Conversations, req.Org, from.ID)
		return kept != nil, cmp.Or(err, from.NotStored())
	}
	status := "in progress"
	if u.Queued {
		status = "queued"
	}
	refused := fault.New(fault.Conflict, "previous_response_not_ended",
		"%s: the response %q has not ended, it is %s; send the request again when it has ended, or cancel "+
			"it", from.Member, from.ID, status).In(from.Member)
	refused.RetryAfter = eventlog.AttachRetry
	return false, refused
}

// storeOptionsOf reads how a segment is stored; nil = it is not.
func storeOptionsOf(ctx context.Context, archive journal.Archive, orgID string, account *memlimit.Account, u Unfinished,
	grade loop.Grade) (*StoreOptions, error) {
	read := func(ref string, into any) (bool, error) {
		var rows []json.RawMessage
		err := journal.ReadBatch(account, func(limit int) (err error) {
			rows, err = archive.Rows(ctx, orgID, u.RunID, []string{ref}, limit)
			return err
		})
		if err != nil || len(rows) == 0 {
			return false, journal.ReadError(u.RunID, err)
		}
		if err := json.Unmarshal(rows[0], into); err != nil {
			return false, journal.AsideError(u.RunID, journal.Damaged(ref, err).Error())
		}
		return true, nil
	}
	if grade != loop.Durable {
		var keep StoreOptions
		if there, err := read(storeRef, &keep); !there || err != nil {
			return nil, err
		}
		return &keep, nil
	}
	var part storedPart
	if u.Part > 0 {
		if there, err := read(partRef(u.Part), &part); there || err != nil {
			return part.Store, err
		}
	}
	var q storedRequest
	_, err := read(requestRef, &q)
	return q.Store, err
}

// Delete deletes a stored segment of the caller's org and of an owner ("" = none), with its run if
// nothing else of it is stored. One that a fork of the owner has too stays. A run that has not ended ends, if the
// segment is its latest. Delete
// reports whether there was one. It need not be readable.
func (s Segments) Delete(ctx context.Context, caller caller.Caller, owner, id string) (bool, error) {
	orgID := caller.Org.ID
	for range 3 { // it may end, and be stored, while it is looked for
		c, err := conversation.FindDeletable(ctx, s.r.o.Conversations, orgID, owner, id)
		if err != nil {
			return false, err
		}
		if c != nil {
			shared := false
			if owner != "" {
				shared, err = conversation.IsShared(ctx, s.r.o.Conversations, orgID, owner, id)
			}
			if shared || err != nil {
				return shared, err
			}
			return s.deleteStored(ctx, orgID, id, c)
		}
		u, err := unfinishedSegment(ctx, s.r.o.Archive, orgID, owner, caller.Account, id)
		if err != nil {
			return false, err
		}
		if u == nil {
			continue
		}
		err = s.r.requestEnd(ctx, orgID, u.RunID, endOfGone(caller.Principal.ID, loop.Deleted), nil)
		switch ended := new(fault.Error); {
		case errors.As(err, &ended) && ended.Code == fault.Conflict:
			continue
		case err != nil:
			return false, err
		case u.Part == 0:
			err = s.r.o.LaterDeleter.DeleteLater(ctx, orgID, u.RunID)
		}
		return err == nil, err
	}
	return false, nil
}

// Forget deletes the runs of segments that conversations had which were deleted, if these are not stored any more: a
// fork has had them for longer than the conversation of their run.
func (s Segments) Forget(ctx context.Context, orgID string, ids []string) error {
	for _, id := range ids {
		runs := conversation.MayBe(id)
		if len(runs) == 0 {
			continue
		}
		c, err := conversation.FindAny(ctx, s.r.o.Conversations, orgID, id)
		for i := 0; err == nil && c == nil && i < len(runs); i++ {
			err = s.r.o.LaterDeleter.DeleteLater(ctx, orgID, runs[i].Run)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteStored deletes a segment that is stored.
func (s Segments) deleteStored(ctx context.Context, orgID, id string, c *journal.Conversation) (bool, error) {
	if c.RunID == "" { // it is damaged, and nobody knows its run
		return conversation.DeleteSegment(ctx, s.r.o.Conversations, orgID, id)
	}
	if err := s.r.audience.segmentDeleted(ctx, orgID, c); err != nil {
		return false, err
	}
	if alone, err := conversation.IsAlone(ctx, s.r.o.Conversations, orgID, c); err != nil {
		return false, err
	} else if alone {
		if err := s.r.o.LaterDeleter.DeleteLater(ctx, orgID, c.RunID); err != nil {
			return false, err
		}
	}
	return conversation.DeleteSegment(ctx, s.r.o.Conversations, orgID, id)
}

// Cancel ends the run of a segment of the org, if it is in progress, or is the latest of
// a run that waits. A run that has ended is no error. Cancel waits until the run has ended, as long
// as ctx allows.
func (s Segments) Cancel(ctx context.Context, orgID string, c *journal.Conversation, inProgress bool, by org.Author) error {
	if !inProgress {
		if waiting, err := s.r.audience.waitsAt(ctx, orgID, c); waiting == nil || err != nil {
			return err
		}
	}
	runID := c.RunID
	key := journal.RunKey{Org: orgID, Run: runID}
	next, done := s.r.followers.Listen(key)
	defer done()
	stored, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendTimeout) // it counts, also if the caller leaves
	defer cancel()
	err := s.r.Cancel(stored, orgID, runID, by)
	if ended := new(fault.Error); errors.As(err, &ended) && ended.Code == fault.Conflict {
		return nil
	} else if err != nil {
		return err
	}
	poll := time.NewTicker(cancelPoll)
	defer poll.Stop()
	for {
		changed := next()
		if head, err := s.r.o.Archive.Head(ctx, orgID, runID); err == nil && head.Summary.Status == journal.Done {
			return nil
		}
		select {
		case <-changed:
		case <-poll.C:
		case <-s.r.leases.closing:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// cancelPoll is how often Cancel looks whether the run has ended, if nothing rings.
const cancelPoll = 200 * time.Millisecond

// dropSegment deletes the segment that was stored for a run which does not wait after all, or is deleted.
func (d *driver) dropSegment() {
	run := &d.run
	if run.start.store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(run.ctx), appendTimeout)
	defer cancel()
	id := conversation.Segment{Run: run.lease.RunID, Part: run.state().Parks}.ID()
	if _, err := conversation.DeleteSegment(ctx, d.o.Conversations, run.req.Org, id); err != nil {
		run.log.Error("what a run has stored of its conversation is not deleted", "segment", id, "error", err)
	}
}
