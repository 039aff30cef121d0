package conversation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/tool"
)

// A session of a program is a head, and a chain of segments: one for each turn.
//
//	head ──Previous──► the last turn ──Previous──► … ──► the first turn
//
// A turn adds a segment and moves the head to it. A rewind moves the head back, and a fork is another head on the same
// segment. The store deletes segments with the last head that reaches them.

// Errors about sessions of programs.
var (
	ErrNoSession = errors.New("there is no such session")
	ErrReserved  = errors.New("the session has another run in progress")
)

// noRun is an error for a run that a session does not contain.
type noRun struct{ session, run string }

func (e noRun) Error() string {
	return fmt.Sprintf("session %s does not contain run %s", e.session, e.run)
}

// Unwrap returns [ErrNoSession].
func (noRun) Unwrap() error { return ErrNoSession }

// maxTurnsBytes is how many bytes of turns are read at a time.
const maxTurnsBytes = 32 << 20

// ChainName names a session of a program.
type ChainName struct {
	Caller tool.CallerKey
	ID     string
}

// ChainShown is what programs see of a session beside its turns. It has the fields of turnpike.SessionInfo.
type ChainShown struct {
	Caller       tool.CallerKey    `json:"owner"`
	ID           string            `json:"id"`
	Title        string            `json:"title,omitempty"`
	Participants []string          `json:"participants,omitempty"`
	Metadata     map[string]string `json:"metadata,omitempty"`
	Summary      string            `json:"summary,omitempty"`
	Created      time.Time         `json:"created"`
	Updated      time.Time         `json:"updated"` // when it had its last turn
	Expires      time.Time         `json:"expires,omitzero"`
}

// ChainInfo is what is stored of a session beside its turns.
type ChainInfo struct {
	ChainShown
	SummarizedThrough string   `json:"summarized_through,omitempty"` // the last segment that Summary stands for; "" = none
	Rewound           []string `json:"rewound,omitempty"`            // runs that a rewind has taken out
}

// Chains stores the sessions of programs. It is safe for concurrent use.
type Chains struct {
	kept journal.Chains
	org  string
	now  func() time.Time

	mu       sync.Mutex
	reserved map[ChainName]bool
}

// NewChains returns the sessions of programs in a store.
func NewChains(kept journal.Chains, orgID string, now func() time.Time) *Chains {
	return &Chains{kept: kept, org: orgID, now: now, reserved: map[ChainName]bool{}}
}

// Reserve reserves sessions until release is called. The error is ErrReserved if one of them is reserved.
func (c *Chains) Reserve(names ...ChainName) (release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(names, func(n ChainName) bool { return c.reserved[n] }) {
		return nil, ErrReserved
	}
	for _, n := range names {
		c.reserved[n] = true
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, n := range names {
			delete(c.reserved, n)
		}
	}, nil
}

func ownedBy(owner string) string { return journal.LibraryPrefix + owner }

// find returns the head of a session, or an error that wraps ErrNoSession.
func (c *Chains) find(ctx context.Context, n ChainName) (head *journal.Conversation, info ChainInfo, err error) {
	head, err = c.kept.Find(ctx, c.org, ownedBy(n.Caller.String()), namedKey(n.ID))
	if err == nil && head == nil {
		err = ErrNoSession
	}
	if err != nil {
		return nil, info, fmt.Errorf("session %s: %w", n.ID, err)
	}
	return head, infoOf(head), nil
}

func infoOf(head *journal.Conversation) (info ChainInfo) {
	_ = json.Unmarshal(head.RequestJSON, &info) // the gateway wrote it
	return info
}

// save stores the head of a session, behind a segment that it names.
func (c *Chains) save(ctx context.Context, head journal.Conversation, info ChainInfo, segments ...journal.Saved) (err error) {
	if head.RequestJSON, err = json.Marshal(info); err != nil {
		return err
	}
	ttl := journal.Kept
	if !info.Expires.IsZero() {
		ttl = max(info.Expires.Sub(c.now()), 1)
	}
	at := info.Updated.UnixMilli()
	saved := journal.Saved{Conversation: head, TTL: ttl, Keys: []journal.ConversationKey{namedKey(info.ID)}, At: at}
	return c.kept.SaveAll(ctx, c.org, ownedBy(info.Caller.String()), append(segments, saved)...)
}

// touched returns the info of a session that has a turn now. ttl is how long it is stored after that; 0 = for ever.
func (c *Chains) touched(info ChainInfo, ttl time.Duration) ChainInfo {
	now := c.now().UTC().Truncate(time.Millisecond)
	info.Created, info.Updated, info.Expires = cmp.Or(info.Created, now), now, time.Time{}
	if ttl > 0 {
		info.Expires = now.Add(ttl)
	}
	return info
}

// Append adds a turn to a session, which begins with it if there is none. Part is its number in RunID, from 1: a turn that
// the owner has stored already is not added again. ttl is how long the session is stored from now on; 0 = for ever.
func (c *Chains) Append(ctx context.Context, n ChainName, turn journal.Conversation, ttl time.Duration) error {
	id := Segment{Run: turn.RunID, Part: turn.Part - 1}.ID()
	for {
		head, info, err := c.find(ctx, n)
		if errors.Is(err, ErrNoSession) {
			head, info, err = &journal.Conversation{}, ChainInfo{ChainShown: ChainShown{Caller: n.Caller, ID: n.ID}}, nil
		}
		if err != nil {
			return err
		}
		turn.Previous, head.Previous = head.Previous, id
		segment := journal.Saved{Conversation: turn, TTL: journal.Kept, Keys: []journal.ConversationKey{segmentKey(id)}}
		err = c.save(ctx, *head, c.touched(info, ttl), segment)
		if errors.Is(err, org.ErrExists) {
			stored, err := c.kept.Find(ctx, c.org, ownedBy(n.Caller.String()), segmentKey(id))
			if err != nil || stored != nil {
				return err
			}
		} else if !errors.Is(err, journal.ErrChanged) {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// Info returns what is stored of a session beside its turns. The error wraps ErrNoSession if there is none, as those of
// the methods below do.
func (c *Chains) Info(ctx context.Context, n ChainName) (ChainInfo, error) {
	_, info, err := c.find(ctx, n)
	return info, err
}

// List returns sessions of an owner, those with the latest turn first: at most limit, after the one with the id before; "" = from
// the first.
func (c *Chains) List(ctx context.Context, caller tool.CallerKey, before string, limit int) (out []ChainInfo, err error) {
	heads, err := c.kept.Heads(ctx, c.org, ownedBy(caller.String()), before, limit)
	for _, head := range heads {
		out = append(out, infoOf(head))
	}
	return out, err
}

// errEnough ends a walk.
var errEnough = errors.New("enough")

// walk calls each for the segments of a head with their ids, the last one first, until it returns false.
func (c *Chains) walk(
	ctx context.Context, owner string, head *journal.Conversation, each func(id string, segment *journal.Conversation) bool,
) error {
	next := head.Previous
	err := c.kept.FindChain(ctx, c.org, ownedBy(owner), next, func(segment *journal.Conversation) error {
		id := next
		if next = segment.Previous; !each(id, segment) {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// Turns returns the newest turns of a session, the oldest first, and what stands for those before: at most limit turns behind
// those that its summary stands for, of at most 32 MiB, and no run without its begin.
func (c *Chains) Turns(ctx context.Context, n ChainName, limit int) (turns []*journal.Conversation, info ChainInfo, err error) {
	head, info, err := c.find(ctx, n)
	if err != nil {
		return nil, info, err
	}
	size, cut := 0, ""
	err = c.walk(ctx, n.Caller.String(), head, func(id string, turn *journal.Conversation) bool {
		if id == info.SummarizedThrough {
			return false
		}
		if size += eventlog.HeldBytes(turn.Items); size > maxTurnsBytes || len(turns) == limit {
			cut = turn.RunID
			return false
		}
		turns = append(turns, turn)
		return true
	})
	turns = slices.DeleteFunc(turns, func(turn *journal.Conversation) bool { return turn.RunID == cut })
	slices.Reverse(turns)
	return turns, info, err
}

// change stores a session as f changes it. f is called again if another writer has changed it meanwhile.
func (c *Chains) change(ctx context.Context, n ChainName, f func(head *journal.Conversation, info *ChainInfo) error) error {
	for {
		head, info, err := c.find(ctx, n)
		if err == nil {
			err = f(head, &info)
		}
		if err == nil {
			err = c.save(ctx, *head, info)
		}
		if !errors.Is(err, journal.ErrChanged) || ctx.Err() != nil {
			return err
		}
	}
}

// Describe stores the title, the participants and the metadata of a session.
func (c *Chains) Describe(ctx context.Context, n ChainName, title string, participants []string, metadata map[string]string) error {
	return c.change(ctx, n, func(_ *journal.Conversation, info *ChainInfo) error {
		info.Title, info.Participants, info.Metadata = title, participants, metadata
		return nil
	})
}

// Summarize stores a text that stands for the turns of a session up to the last one of a run.
func (c *Chains) Summarize(ctx context.Context, n ChainName, throughRun, summary string) error {
	return c.change(ctx, n, func(head *journal.Conversation, info *ChainInfo) error {
		through := ""
		err := c.walk(ctx, n.Caller.String(), head, func(id string, turn *journal.Conversation) bool {
			if turn.RunID == throughRun {
				through = id
			}
			return through == ""
		})
		if err == nil && through == "" {
			err = noRun{n.ID, throughRun}
		}
		info.Summary, info.SummarizedThrough = summary, through
		return err
	})
}

// Rewind takes a run and all turns after its first one out of a session, with a summary of them. The error is ErrReserved if the
// session is reserved.
func (c *Chains) Rewind(ctx context.Context, n ChainName, beforeRun string) error {
	release, err := c.Reserve(n)
	if err != nil {
		return err
	}
	defer release()
	return c.change(ctx, n, func(head *journal.Conversation, info *ChainInfo) error {
		var ids, runs []string // of all turns
		cut, last := 0, ""     // how many are taken out, and the one before them
		err := c.walk(ctx, n.Caller.String(), head, func(id string, turn *journal.Conversation) bool {
			ids, runs = append(ids, id), append(runs, turn.RunID)
			if turn.RunID == beforeRun {
				cut, last = len(ids), turn.Previous
			}
			return turn.RunID != beforeRun || turn.Part > 1
		})
		if err == nil && cut == 0 {
			err = noRun{n.ID, beforeRun}
		}
		head.Previous = last
		if slices.Contains(ids[:cut], info.SummarizedThrough) {
			info.Summary, info.SummarizedThrough = "", ""
		}
		info.Rewound = append(info.Rewound, slices.Compact(runs[:cut])...)
		return err
	})
}

// Fork begins another session of the owner with the turns of a session. The error wraps org.ErrExists if there is one with
// the id, and is ErrReserved if one of them is reserved.
func (c *Chains) Fork(ctx context.Context, n ChainName, id string, ttl time.Duration) error {
	release, err := c.Reserve(n, ChainName{n.Caller, id})
	if err != nil {
		return err
	}
	defer release()
	head, info, err := c.find(ctx, n)
	if err != nil {
		return err
	}
	info.ID, info.Created, info.Rewound = id, time.Time{}, nil
	return c.save(ctx, journal.Conversation{Previous: head.Previous}, c.touched(info, ttl))
}

// Delete deletes a session with the turns that no other one has. The error is ErrReserved if it is reserved.
func (c *Chains) Delete(ctx context.Context, n ChainName) error {
	release, err := c.Reserve(n)
	if err != nil {
		return err
	}
	defer release()
	was, err := c.kept.Delete(ctx, c.org, ownedBy(n.Caller.String()), namedKey(n.ID))
	if err == nil && !was {
		err = fmt.Errorf("session %s: %w", n.ID, ErrNoSession)
	}
	return err
}
