package turnpike

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// RunState says where a run is.
type RunState string

// The states of runs.
const (
	RunInProgress RunState = "in_progress" // it is performed, by this agent or another one
	RunWaits      RunState = "waits"       // for approvals: Resume it with decisions
	RunBroken     RunState = "broken"      // its process has ended before it did: Resume it
	RunEnded      RunState = "ended"
)

// RunFilter selects runs. The zero value selects all.
type RunFilter struct {
	States []RunState // nil = all
	Caller string     // Caller.ID of the run; "" = all
	Agent  string     // Agent.Name of its agent; "" = all
	Since  time.Time  // begun then or later; zero = all
}

// RunInfo is a run without its events.
type RunInfo struct {
	ID      string
	State   RunState
	Reason  Reason // why it ended; "" before
	Agent   string // Agent.Name: which agent of the program resumes it; "" = not recorded, in a run of an earlier version
	Session string // id of the session that it is part of; "" = none
	Caller  string // Caller.ID
	Model   string
	Rounds  int // model calls, retries not counted

	Begun, Ended time.Time // Ended is zero before
}

// runsPage is how many runs are read at a time.
const runsPage = 100

// Runs yields the runs of the agent's Store that the filter selects, those of its other agents too, the latest first. Without a
// Store they are those that this agent has in memory. An error is the last pair. After a restart, those that are [RunBroken] are the
// ones to [Agent.Resume].
func (a *Agent) Runs(ctx context.Context, f RunFilter) iter.Seq2[RunInfo, error] {
	return pages(func(before string) ([]RunInfo, string, error) {
		e, err := a.prepare()
		if err != nil {
			return nil, "", err
		}
		q := journal.Query{Before: before, Principal: f.Caller, Limit: runsPage}
		for _, s := range f.States {
			if !slices.Contains([]RunState{RunInProgress, RunWaits, RunBroken, RunEnded}, s) {
				return nil, "", invalid("RunFilter.States has %q; use RunInProgress, RunWaits, RunBroken or RunEnded", s)
			}
		}
		if !f.Since.IsZero() {
			q.Since = f.Since.UnixMilli()
		}
		found, err := e.archive.Runs(ctx, orgID, q)
		if err != nil {
			return nil, "", errorOf(ctx, err, Partial{})
		}
		var out []RunInfo
		for _, one := range found {
			if one.Surface != surfaceName { // of a gateway with the same file
				continue
			}
			info, err := e.runInfo(ctx, one)
			if err != nil {
				return out, "", errorOf(ctx, err, Partial{})
			}
			if (len(f.States) == 0 || slices.Contains(f.States, info.State)) && (f.Agent == "" || f.Agent == info.Agent) {
				out = append(out, info)
			}
		}
		if len(found) < runsPage {
			return out, "", nil
		}
		return out, found[len(found)-1].RunID, nil
	})
}

// runInfo returns a run as programs see it.
func (e *engine) runInfo(ctx context.Context, s journal.Summary) (RunInfo, error) {
	info := RunInfo{ID: s.RunID, State: RunEnded, Caller: s.Principal, Model: s.Model, Rounds: s.Rounds, Begun: timeOf(s.CreatedAt)}
	if err := e.begun(ctx, &info); err != nil {
		return info, err
	}
	switch s.Status {
	case journal.Done, journal.IsAside:
		if s.FinishedAt > 0 {
			info.Ended = timeOf(s.FinishedAt)
		}
		if s.Reason != "" {
			info.Reason = reasonOf(s.Reason)
		}
		return info, nil
	case journal.Waiting, journal.Paused:
		info.State = RunWaits
		return info, nil
	case journal.Running, journal.Queued:
	}
	e.mu.Lock()
	here := e.calls[s.RunID] != nil
	e.mu.Unlock()
	info.State = RunInProgress
	if here {
		return info, nil
	}
	head, err := e.archive.Head(ctx, orgID, s.RunID)
	switch {
	case errors.Is(err, org.ErrNotFound): // deleted meanwhile
		info.State = RunEnded
	case err != nil:
		return info, err
	case head.Summary.Status == journal.Running && head.LeaseUntil == 0:
		info.State = RunBroken
	}
	return info, nil
}

// begun completes info by the first fact of the run, if this build can read it.
func (e *engine) begun(ctx context.Context, info *RunInfo) error {
	limit := 4 << 10 // bytes: few runs have a larger first fact
	for {
		facts, err := e.archive.Facts(ctx, orgID, info.ID, 0, limit)
		if large, ok := errors.AsType[*journal.TooLarge](err); ok && limit < large.Bytes {
			limit = large.Bytes
			continue
		}
		_, unreadable := errors.AsType[*journal.Unreadable](err)
		switch {
		case unreadable, errors.Is(err, org.ErrNotFound): // set aside; deleted meanwhile
			return nil
		case err != nil:
			return err
		}
		for _, f := range facts {
			if a, ok := f.Body.(loop.Accepted); ok {
				info.Agent, info.Session = a.Agent, a.AgentSession
				return nil
			}
		}
		return nil
	}
}
