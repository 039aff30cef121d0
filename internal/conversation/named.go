package conversation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

// A named conversation is a list of parts, each stored under its own key: segments, and lists of items
// that a client has added. A part that is not stored any more is no longer in the conversation.

// itemsPrefix begins the ids of parts that the caller has added.
const itemsPrefix = "items_"

// MaxParts is how many parts a named conversation may have.
const MaxParts = maxHistorySegments

// PartOf returns the id of the part whose items have a suffix in their ids: that of a
// segment if the suffix is that of its run.
func PartOf(suffix string, added bool) string {
	if added {
		return itemsPrefix + suffix
	}
	return segmentPrefix + suffix
}

// SuffixOfPart is the inverse of PartOf.
func SuffixOfPart(id string) string {
	return strings.TrimPrefix(strings.TrimPrefix(id, itemsPrefix), segmentPrefix)
}

// Named conversations belong to their org, as segments do.
func namedKey(id string) journal.ConversationKey {
	return journal.ConversationKey{Kind: journal.SessionID, ID: id}
}

func partKey(id string) journal.ConversationKey {
	if IsAdded(id) {
		return namedKey(id)
	}
	return segmentKey(id)
}

// Find returns a named conversation of the org, or nil. Its id must begin with prefix, which the
// ids of parts do not.
func Find(ctx context.Context, kept journal.Conversations, orgID, prefix, id string) (*journal.Conversation, error) {
	if !strings.HasPrefix(id, prefix) {
		return nil, nil
	}
	return kept.Find(ctx, orgID, "", namedKey(id))
}

// FindPart returns a part of a named conversation of the org that has no owner, or nil.
func FindPart(ctx context.Context, kept journal.Conversations, orgID, id string) (*journal.Conversation, error) {
	c, err := kept.Find(ctx, orgID, "", partKey(id))
	return ofOwner("", c, err)
}

// Save stores a named conversation or a part that is new.
func Save(ctx context.Context, kept journal.Conversations, orgID, id string, c journal.Conversation, ttl time.Duration) error {
	return kept.Save(ctx, orgID, "", c, ttl, namedKey(id))
}

// Change replaces a named conversation by what change makes of it, and stores it for ttl from
// now on. It returns the new one, or nil if there is none. change is called again if
// somebody else has changed it meanwhile; if it returns false, nothing is stored.
func Change(ctx context.Context, kept journal.Conversations, orgID, id string, ttl time.Duration, change func(*journal.Conversation) bool) (*journal.Conversation, error) {
	for {
		c, err := kept.Find(ctx, orgID, "", namedKey(id))
		if err != nil || c == nil || !change(c) {
			return c, err
		}
		err = kept.Save(ctx, orgID, "", *c, ttl, namedKey(id))
		if err == nil || !errors.Is(err, journal.ErrChanged) || ctx.Err() != nil {
			return c, err
		}
	}
}

// Without takes parts out of a named conversation, which is then stored for ttl from now on: those that change returns, after it
// has changed the list. If it returns false, nothing is stored. Items that clients have added are deleted with the last
// conversation that has them. The rest is as for [Change].
func Without(
	ctx context.Context, kept journal.Conversations, orgID, id string, ttl time.Duration,
	change func(*journal.Conversation) (dropped []string, store bool),
) (*journal.Conversation, error) {
	for {
		c, err := kept.Find(ctx, orgID, "", namedKey(id))
		if err != nil || c == nil {
			return c, err
		}
		dropped, store := change(c)
		if !store {
			return c, nil
		}
		err = kept.(journal.Branches).DropParts(ctx, orgID, id, *c, ttl, partKeys(dropped), false)
		if err == nil || !errors.Is(err, journal.ErrChanged) || ctx.Err() != nil {
			return c, err
		}
	}
}

// Delete deletes a named conversation of the org with the items that clients have added, unless a fork has them. Its
// segments stay. It reports whether there was one. It need not be readable.
func Delete(ctx context.Context, kept journal.Conversations, orgID, id string) (bool, error) {
	for {
		c, err := deletable(kept.Find(ctx, orgID, "", namedKey(id)))
		if err != nil || c == nil {
			return false, err
		}
		was, err := kept.(journal.Branches).DeleteWith(ctx, orgID, id, c.Version, partKeys(c.Parts))
		if !errors.Is(err, journal.ErrChanged) || ctx.Err() != nil {
			return was, err
		}
	}
}

// Parts returns the ids of the parts of a named conversation; nil = there is no such conversation.
func Parts(ctx context.Context, kept journal.Conversations, orgID, id string) ([]string, error) {
	c, err := kept.Find(ctx, orgID, "", namedKey(id))
	if err != nil || c == nil {
		return nil, err
	}
	return c.Parts, nil
}

// readNamed reads the named conversation of a request, and those of its parts that are stored.
func readNamed(ctx context.Context, kept journal.Conversations, req Request, memory *memlimit.Share) (named *journal.Conversation, found []part, err error) {
	c := req.Continues
	named, err = kept.Find(ctx, req.Org, "", namedKey(c.ID))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("conversation %s: %w", c.ID, err)
	case named == nil:
		return nil, nil, c.NotStored()
	}
	found, err = readParts(ctx, kept, req.Org, true, named.Parts, &conversationSize{member: c.Member, remedy: "start another one", memory: memory})
	slices.Reverse(found)
	return named, found, err
}

// readParts reads parts of a named conversation, with those that have an owner only if owned is set: the owner is the
// conversation, or one that it was forked from. It returns the last one first.
func readParts(ctx context.Context, kept journal.Conversations, orgID string, owned bool, parts []string, size *conversationSize) (found []part, err error) {
	if len(parts) == 0 {
		return nil, nil
	}
	keys := partKeys(parts)
	slices.Reverse(keys)
	err = kept.FindAll(ctx, orgID, "", keys, func(i int, c *journal.Conversation) error {
		if c.Owner != "" && !owned {
			return nil
		}
		found = append(found, part{parts[len(parts)-1-i], c})
		return size.add(c)
	})
	return found, err
}

func partKeys(parts []string) []journal.ConversationKey {
	keys := make([]journal.ConversationKey, len(parts))
	for i, part := range parts {
		keys[i] = partKey(part)
	}
	return keys
}

// Append adds a segment of a run to a named conversation, which is then stored for ttl from now on. One that was
// deleted meanwhile stays deleted, and a segment that it has already is not added again. So is none of a run that has
// ended: an owner that did not notice would add again what a rewind has taken out since.
func Append(ctx context.Context, kept journal.Conversations, ends Ends, orgID, id, run, segment string, ttl time.Duration) error {
	var failed error
	_, err := Change(ctx, kept, orgID, id, ttl, func(c *journal.Conversation) bool {
		if slices.Contains(c.Parts, segment) {
			return false
		}
		var ended bool // after c was read: a rewind changes it later
		if ended, failed = hasEnded(ctx, ends, orgID, run); ended || failed != nil {
			return false
		}
		c.Parts = append(slices.Clip(StoredParts(ctx, kept, orgID, c.Parts)), segment)
		return true
	})
	return cmp.Or(err, failed)
}

// StoredParts returns the parts of a named conversation without those that are not stored any more. It
// looks for them only if there are MaxParts or more. If one of them cannot be read, it returns all.
func StoredParts(ctx context.Context, kept journal.Conversations, orgID string, parts []string) []string {
	if len(parts) < MaxParts {
		return parts
	}
	var stored []string
	err := kept.FindAll(ctx, orgID, "", partKeys(parts), func(i int, _ *journal.Conversation) error {
		stored = append(stored, parts[i])
		return nil
	})
	if err != nil {
		return parts
	}
	return stored
}

// DeleteAdded deletes a part that no conversation has if a client has added it. A segment stays.
func DeleteAdded(ctx context.Context, kept journal.Conversations, orgID, part string) (err error) {
	if IsAdded(part) {
		_, err = kept.Delete(ctx, orgID, "", namedKey(part))
	}
	return err
}
