package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

// A session is a conversation that the caller has named. It is a list of parts, each stored
// under its own key: responses, and lists of items that the caller has added. A part that
// is not stored any more is no longer in the session.

// itemsPrefix begins the ids of parts that the caller has added.
const itemsPrefix = "items_"

// MaxParts is how many parts a session may have.
const MaxParts = maxHistoryResponses

// PartOf returns the id of the part whose items have a suffix in their ids: that of a
// response if the suffix is that of its run.
func PartOf(suffix string, added bool) string {
	if added {
		return itemsPrefix + suffix
	}
	return responsePrefix + suffix
}

// SuffixOfPart is the inverse of PartOf.
func SuffixOfPart(id string) string {
	return strings.TrimPrefix(strings.TrimPrefix(id, itemsPrefix), responsePrefix)
}

// Sessions and their parts belong to their org, as responses do.
func sessionKey(id string) journal.ConversationKey {
	return journal.ConversationKey{Kind: journal.SessionID, ID: id}
}

func partKey(id string) journal.ConversationKey {
	if strings.HasPrefix(id, itemsPrefix) {
		return sessionKey(id)
	}
	return responseKey(id)
}

// FindSession returns a session of the org, or nil. Its id must begin with prefix, which the
// ids of parts do not.
func FindSession(ctx context.Context, kept journal.Conversations, orgID, prefix, id string) (*journal.Conversation, error) {
	if !strings.HasPrefix(id, prefix) {
		return nil, nil
	}
	return kept.Find(ctx, orgID, "", sessionKey(id))
}

// FindPart returns a part of a session of the org, or nil.
func FindPart(ctx context.Context, kept journal.Conversations, orgID, id string) (*journal.Conversation, error) {
	return kept.Find(ctx, orgID, "", partKey(id))
}

// SaveSession stores a session or a part that is new.
func SaveSession(ctx context.Context, kept journal.Conversations, orgID, id string, c journal.Conversation, ttl time.Duration) error {
	return kept.Save(ctx, orgID, "", c, ttl, sessionKey(id))
}

// ChangeSession replaces a session by what change makes of it, and stores it for ttl from
// now on. It returns the new session, or nil if there is none. change is called again if
// somebody else has changed the session meanwhile; if it returns false, nothing is stored.
func ChangeSession(ctx context.Context, kept journal.Conversations, orgID, id string, ttl time.Duration, change func(*journal.Conversation) bool) (*journal.Conversation, error) {
	for {
		c, err := kept.Find(ctx, orgID, "", sessionKey(id))
		if err != nil || c == nil || !change(c) {
			return c, err
		}
		err = kept.Save(ctx, orgID, "", *c, ttl, sessionKey(id))
		if err == nil || !errors.Is(err, journal.ErrChanged) || ctx.Err() != nil {
			return c, err
		}
	}
}

// DeleteSession deletes a session of the org with the items that the caller has added. Its
// responses stay. It reports whether there was one. The session is deleted last: after an
// error it can be deleted again. It need not be readable.
func DeleteSession(ctx context.Context, kept journal.Conversations, orgID, id string) (bool, error) {
	c, err := deletable(kept.Find(ctx, orgID, "", sessionKey(id)))
	if err != nil || c == nil {
		return false, err
	}
	for _, part := range c.Parts {
		if err := DeleteAdded(ctx, kept, orgID, part); err != nil {
			return false, err
		}
	}
	return kept.Delete(ctx, orgID, "", sessionKey(id))
}

// readSession reads the session of a request: the ids of its parts, and those that are stored.
func readSession(ctx context.Context, kept journal.Conversations, req *Request, memory *memlimit.Share) (parts []string, found []*journal.Conversation, err error) {
	session, err := kept.Find(ctx, req.Org, "", sessionKey(req.Session))
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("conversation %s: %w", req.Session, err)
	case session == nil:
		return nil, nil, fault.New(fault.NotFound, "conversation_not_found", "no conversation has the id %q; it was deleted, or its time is over", req.Session).In("conversation")
	}
	found, err = readParts(ctx, kept, req.Org, session.Parts, &conversationSize{member: "conversation", remedy: "start another one", memory: memory})
	return session.Parts, found, err
}

// readParts reads parts of a session.
func readParts(ctx context.Context, kept journal.Conversations, orgID string, parts []string, size *conversationSize) ([]*journal.Conversation, error) {
	var found []*journal.Conversation
	for _, part := range parts {
		c, err := FindPart(ctx, kept, orgID, part)
		if err != nil {
			return nil, fmt.Errorf("conversation: part %s: %w", part, err)
		}
		if c == nil {
			continue
		}
		if err := size.add(c); err != nil {
			return nil, err
		}
		found = append(found, c)
	}
	return found, nil
}

// appendToSession adds a response to the session of its request, unless the session was
// deleted meanwhile. An owner of the run before this one may have added it.
func appendToSession(ctx context.Context, kept journal.Conversations, req *Request, response string) error {
	if req.Session == "" {
		return nil
	}
	_, err := ChangeSession(ctx, kept, req.Org, req.Session, req.Store.For, func(c *journal.Conversation) bool {
		if slices.Contains(c.Parts, response) {
			return false
		}
		c.Parts = append(slices.Clip(StoredParts(ctx, kept, req.Org, c.Parts)), response)
		return true
	})
	return err
}

// StoredParts returns the parts of a session without those that are not stored any more. It
// looks for them only if there are MaxParts or more.
func StoredParts(ctx context.Context, kept journal.Conversations, orgID string, parts []string) []string {
	if len(parts) < MaxParts {
		return parts
	}
	return slices.DeleteFunc(slices.Clone(parts), func(part string) bool {
		c, err := FindPart(ctx, kept, orgID, part)
		return err == nil && c == nil
	})
}

// DeleteAdded deletes a part of a session if the caller has added it. A response stays.
func DeleteAdded(ctx context.Context, kept journal.Conversations, orgID, part string) error {
	if !strings.HasPrefix(part, itemsPrefix) {
		return nil
	}
	_, err := kept.Delete(ctx, orgID, "", sessionKey(part))
	return err
}
