package conversation

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
)

// segmentPrefix begins the ids of segments. The rest is that of the id of their run. Ids of this form are
// stored, and clients have them.
const segmentPrefix = "resp_"

// runPrefix begins the ids of runs.
const runPrefix = "run_"

// Segment says which part of which run a segment has. A run has several parts if it waits for approvals.
type Segment struct {
	Run  string
	Part int // from 0

	// Step is the number of a fact in the journal of the run if the segment only says which approvals are
	// still to be decided; 0 = it has all of the part.
	Step int64
}

// ID returns the id under which the segment is stored.
func (s Segment) ID() string { return SegmentID(s.Run, eventlog.PartSuffix(s.Part, s.Step)) }

// SegmentID is like Segment.ID, with the part as [event.Started] has it.
func SegmentID(run, part string) string {
	return segmentPrefix + strings.TrimPrefix(run, runPrefix) + part
}

// MayBe returns the segments that an id may be of, none of which is a step: the end of an id can be that of
// the run's id, or a part.
func MayBe(id string) []Segment {
	rest, is := strings.CutPrefix(id, segmentPrefix)
	if !is {
		return nil
	}
	all := []Segment{{Run: runPrefix + rest}}
	if at := strings.LastIndexByte(rest, 'p'); at > 0 {
		if part, err := strconv.Atoi(rest[at+1:]); err == nil && part > 0 && eventlog.PartSuffix(part, 0) == rest[at:] {
			all = append(all, Segment{Run: runPrefix + rest[:at], Part: part})
		}
	}
	return all
}

// segmentKey is the key of a stored segment. Segments belong to their org: every key of the org can
// continue them.
func segmentKey(id string) journal.ConversationKey {
	return journal.ConversationKey{Kind: journal.ResponseID, ID: id}
}

// FindSegment returns a stored segment of the org that has no owner, or nil.
func FindSegment(ctx context.Context, kept journal.Conversations, orgID, id string) (*journal.Conversation, error) {
	c, err := kept.Find(ctx, orgID, "", segmentKey(id))
	return ofOwner("", c, err)
}

// SaveSegment stores a segment for ttl. The error wraps org.ErrExists if it is stored already.
func SaveSegment(ctx context.Context, kept journal.Conversations, orgID, id string, c journal.Conversation, ttl time.Duration) error {
	return kept.Save(ctx, orgID, "", c, ttl, segmentKey(id))
}

// DeleteSegment deletes a segment, and reports whether there was one.
func DeleteSegment(ctx context.Context, kept journal.Conversations, orgID, id string) (bool, error) {
	return kept.Delete(ctx, orgID, "", segmentKey(id))
}

// FindDeletable returns a stored segment of an owner, or nil; "" = of the clients of the org. It also returns
// what is known of a segment that cannot be decoded: that can be deleted, too.
func FindDeletable(ctx context.Context, kept journal.Conversations, orgID, owner, id string) (*journal.Conversation, error) {
	c, err := deletable(kept.Find(ctx, orgID, "", segmentKey(id)))
	return ofOwner(owner, c, err)
}

// FindAny is [FindDeletable] for a segment of any owner.
func FindAny(ctx context.Context, kept journal.Conversations, orgID, id string) (*journal.Conversation, error) {
	return deletable(kept.Find(ctx, orgID, "", segmentKey(id)))
}

// ofOwner returns a stored conversation if it is of the owner, and otherwise nil, as if it were not stored. An
// error about a conversation of another owner is none. Its arguments are the results of a Find.
func ofOwner(owner string, c *journal.Conversation, err error) (*journal.Conversation, error) {
	if bad, is := errors.AsType[*journal.Unreadable](err); is && bad.Conversation != nil && bad.Conversation.Owner != owner {
		return nil, nil
	}
	if c != nil && c.Owner != owner {
		return nil, nil
	}
	return c, err
}

// deletable returns what is known of a stored conversation that is to be deleted: one that cannot be
// decoded can be deleted too. Its arguments are the results of a Find.
func deletable(c *journal.Conversation, err error) (*journal.Conversation, error) {
	if bad, is := errors.AsType[*journal.Unreadable](err); is && bad.Conversation != nil {
		return bad.Conversation, nil
	}
	return c, err
}

// IsAlone reports whether no other part of the run of a segment is stored.
func IsAlone(ctx context.Context, kept journal.Conversations, orgID string, c *journal.Conversation) (bool, error) {
	self := max(c.Part, 1) - 1
	for part := range self + 2 {
		if part == self && c.Waiting == nil {
			continue
		}
		other, err := FindDeletable(ctx, kept, orgID, c.Owner, Segment{Run: c.RunID, Part: part}.ID())
		if err != nil || other != nil {
			return false, err
		}
	}
	return true, nil
}
