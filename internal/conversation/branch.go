package conversation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
)

// A rewind takes a run, and everything after it, out of a conversation; a fork is a new conversation that begins with what
// another has. Neither copies an item of a named conversation: both store lists of parts. What both have is deleted with the
// last of them: see [journal.Branches]. A run that begins has either seen the conversation in its present version, or is
// not accepted; from then until its end is stored, no rewind is. So a rewind neither takes from a run what it goes on from,
// nor loses what it adds.

// NotIdle is the error for a conversation or session that is neither rewound nor forked because a run of it has not ended.
func NotIdle(id, runID string) *fault.Error {
	f := fault.New(fault.Conflict, "session_busy",
		"%q has a run that has not ended, %s; send the request again when it has, or cancel it", id, runID)
	f.RetryAfter = time.Second
	return f
}

// NoRun is the error for a run that is not in the history of the conversation or session with the id.
func NoRun(id, runID string) *fault.Error {
	return fault.New(fault.NotFound, "run_not_found",
		"before_run: the history of %q has no run %.100q: it added nothing, was taken out before, or an item of it was deleted, "+
			"or it is one of another conversation; "+
			"use the id of a run or response that is in the history", id, runID).In("before_run")
}

// Rewind takes a run, named by its id or by that of a segment of it, and everything after it out of a named conversation
// of the org, which is then stored for ttl from now on. Segments stay stored; items that clients have added are deleted,
// unless a fork has them. It returns the ids of the parts that it has taken out, nil if there is no such conversation, and
// otherwise the error of [NotIdle] or [NoRun].
func Rewind(
	ctx context.Context, kept journal.Conversations, orgID, id, run string, ttl time.Duration,
) (c *journal.Conversation, dropped []string, err error) {
	return rewind(ctx, kept, orgID, id, id, run, func(*journal.Conversation) time.Duration { return ttl })
}

// rewind is [Rewind] for the conversation that clients know as shown. change changes it before it is stored, and returns
// for how long that is.
func rewind(
	ctx context.Context, kept journal.Conversations, orgID, id, shown, run string, change func(*journal.Conversation) time.Duration,
) (c *journal.Conversation, dropped []string, err error) {
	for {
		c, err := idle(ctx, kept, orgID, id)
		if err != nil || c == nil {
			return nil, nil, err
		}
		at, err := placeOf(ctx, kept, orgID, c.Parts, run)
		if err != nil {
			return nil, nil, err
		}
		if at < 0 {
			return nil, nil, NoRun(shown, run)
		}
		dropped := c.Parts[at:]
		c.Parts = slices.Clip(c.Parts[:at])
		ttl := change(c)
		err = kept.(journal.Branches).DropParts(ctx, orgID, id, *c, ttl, partKeys(dropped), true)
		switch busy := new(journal.SessionBusy); {
		case errors.Is(err, journal.ErrChanged) && ctx.Err() == nil:
			continue
		case errors.As(err, &busy):
			return nil, nil, NotIdle(shown, busy.RunID)
		}
		return c, dropped, err
	}
}

// idle returns a named conversation of the org, or nil. The error is also that of [NotIdle].
func idle(ctx context.Context, kept journal.Conversations, orgID, id string) (*journal.Conversation, error) {
	c, err := kept.Find(ctx, orgID, "", namedKey(id))
	if err != nil || c == nil {
		return nil, err
	}
	run, err := kept.(journal.Branches).AddingRun(ctx, orgID, id)
	if err == nil && run != "" {
		err = NotIdle(id, run)
	}
	return c, err
}

// placeOf returns the index of the first part of a run in the parts of a conversation; -1 = it has none that is stored.
func placeOf(ctx context.Context, kept journal.Conversations, orgID string, parts []string, run string) (int, error) {
	var of []string // the runs that it can be
	if strings.HasPrefix(run, runPrefix) {
		of = []string{run}
	} else if slices.Contains(parts, run) {
		of = runsOf(run)
	}
	first := slices.IndexFunc(parts, func(part string) bool { return isOf(part, of) })
	if first < 0 {
		return -1, nil
	}
	for _, part := range parts[first:] {
		if !isOf(part, of) {
			continue
		}
		c, err := deletable(kept.Find(ctx, orgID, "", partKey(part)))
		if err != nil || c != nil {
			return first, err
		}
	}
	return -1, nil
}

// runsOf returns the runs of which a part may be; none if a client has added it.
func runsOf(part string) (runs []string) {
	for _, may := range MayBe(part) {
		runs = append(runs, may.Run)
	}
	return runs
}

func isOf(part string, runs []string) bool {
	return slices.ContainsFunc(runsOf(part), func(run string) bool { return slices.Contains(runs, run) })
}

// AllTurns makes a fork of the whole history.
const AllTurns = -1

// ForkOf returns a fork of a named conversation of the org, which is not stored yet: with the parts up to the last one of
// its first turns: a turn is a run. It returns nil if there is no such conversation, and otherwise the error
// of [NotIdle]. of is how many turns there are; with more turns than that the fork has all. shares says which of its
// parts are deleted with a conversation.
func ForkOf(
	ctx context.Context, kept journal.Conversations, orgID, id string, turns int, shares func(part string) bool,
) (f *journal.Fork, of int, err error) {
	c, err := idle(ctx, kept, orgID, id)
	if err != nil || c == nil {
		return nil, 0, err
	}
	f = &journal.Fork{From: id, Version: c.Version, Conversation: *c}
	f.Conversation.Version = 0
	var seen []string
	end := len(c.Parts)
	for i, part := range c.Parts {
		runs := runsOf(part)
		if len(runs) == 0 || isOf(part, seen) {
			continue
		}
		if of++; of == turns+1 {
			end = i
		}
		seen = append(seen, runs...)
	}
	f.Parts = c.Parts[:end]
	for _, part := range f.Parts {
		if shares(part) {
			f.Shared = append(f.Shared, partKey(part))
		}
	}
	return f, of, nil
}

// IsShared reports whether a conversation other than the one with the id has a part of that.
func IsShared(ctx context.Context, kept journal.Conversations, orgID, id, part string) (bool, error) {
	return kept.(journal.Branches).Shared(ctx, orgID, partKey(part), id)
}

// IsAdded reports whether a part of a named conversation are items that a client has added.
func IsAdded(part string) bool { return strings.HasPrefix(part, itemsPrefix) }

// StoreFork stores a fork of [ForkOf] for ttl. again says that what it was made of has changed meanwhile. The error is also
// that of [NotIdle].
func StoreFork(ctx context.Context, kept journal.Conversations, orgID string, f *journal.Fork, ttl time.Duration) (again bool, err error) {
	return Forked(ctx, f, kept.(journal.Branches).Fork(ctx, orgID, *f, ttl))
}

// Forked returns what [StoreFork] does for a fork of which a store has returned err.
func Forked(ctx context.Context, f *journal.Fork, err error) (again bool, _ error) {
	return forked(ctx, f.From, err)
}

// forked is [Forked] for a conversation that clients know as from.
func forked(ctx context.Context, from string, err error) (again bool, _ error) {
	if busy := new(journal.SessionBusy); errors.As(err, &busy) {
		return false, NotIdle(from, busy.RunID)
	}
	return errors.Is(err, journal.ErrChanged) && ctx.Err() == nil, err
}

// hasEnded reports whether a run of the org has ended.
func hasEnded(ctx context.Context, ends Ends, orgID, run string) (bool, error) {
	if ends == nil {
		return false, nil
	}
	reasons, err := ends.Reasons(ctx, orgID, []string{run})
	_, ended := reasons[run]
	return ended, err
}
