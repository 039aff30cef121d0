package conversation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
)

// A session is one stored conversation, with all of its items, of one key. Its clients resend the messages that
// they saw. Each run of it that ends with an answer replaces it:
//
//	Begin ──► Open: RunID is the run, never expires ──► Close: the items of the run, expires
//
// A session whose run has not ended is busy. No other run begins, and it is not deleted to keep a limit.

// MaxSessions is how many sessions a key can have. One more deletes the one that was not used for the longest time.
const MaxSessions = 128

// SessionInfo is what is stored of a session beside its items.
type SessionInfo struct {
	CreatedAt int64 `json:"created_at"` // Unix milliseconds
	UpdatedAt int64 `json:"updated_at"` // when it was last used
	TTL       int64 `json:"ttl_ms"`     // how long it is kept after that; 0 = until it is deleted

	Remembered []loop.Remembered `json:"remembered,omitempty"` // tools that need no approval again

	Key *journal.SubmitKey `json:"key,omitempty"` // of its latest run; nil = that has none

	Runs []SessionRun `json:"runs,omitempty"` // that have added items which are left, in their order
}

// SessionRun is a run that has added to a session.
type SessionRun struct {
	ID    string `json:"id"`
	Begin int    `json:"begin"` // the index of the first item of its request
}

// before returns the runs whose items begin in front of an index.
func before(runs []SessionRun, index int) []SessionRun {
	return slices.DeleteFunc(slices.Clone(runs), func(r SessionRun) bool { return r.Begin >= index })
}

// Info returns what is stored of a session beside its items.
func Info(c *journal.Conversation) (info SessionInfo) {
	_ = json.Unmarshal(c.RequestJSON, &info) // the gateway wrote it
	return info
}

func (i SessionInfo) encode() json.RawMessage {
	text, err := json.Marshal(i)
	if err != nil {
		panic(err) // plain fields only
	}
	return text
}

// ExpiresAt returns when a session is deleted that nobody uses, in Unix milliseconds; 0 = never.
func (i SessionInfo) ExpiresAt() int64 {
	if i.TTL == 0 {
		return 0
	}
	return i.UpdatedAt + i.TTL
}

func (i SessionInfo) keptFor() time.Duration {
	if i.TTL == 0 {
		return journal.Kept
	}
	return time.Duration(i.TTL) * time.Millisecond
}

// SessionName names a session.
type SessionName struct{ Org, Principal, ID string }

// CheckSessionID returns a [fault.Error] unless a session can have the id.
func CheckSessionID(member, id string) error {
	ok := id != "" && len(id) <= maxSessionID && !strings.HasPrefix(id, ".") && !strings.ContainsFunc(id, func(r rune) bool {
		return !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.:~", r))
	})
	if !ok {
		return fault.New(fault.Invalid, "invalid_value", "%s: %.150q is not a valid id of a session; use 1 to %d letters, digits and the characters - _ . : ~, and no dot at the begin",
			member, id, maxSessionID).In(member)
	}
	return nil
}

const maxSessionID = 128

// Sessions stores sessions. It is safe for concurrent use.
type Sessions struct {
	kept    journal.Conversations
	archive journal.Archive // nil = no run is stored
	now     func() time.Time
	deleted func(n SessionName, since int64)

	// changing serialises what begins runs and adds sessions, by key.
	changing [64]sync.Mutex
	seed     maphash.Seed

	mu       sync.Mutex
	starting map[SessionName]bool // those whose run is not stored yet
}

// NewSessions returns Sessions. archive knows the runs; nil = none. deleted is called for each session that was deleted, with when
// it began in Unix milliseconds, and again when its run ends; for one that has expired only if it has a run. nil = nobody is told.
func NewSessions(kept journal.Conversations, archive journal.Archive, now func() time.Time, deleted func(n SessionName, since int64)) *Sessions {
	return &Sessions{kept: kept, archive: archive, now: now, deleted: deleted, seed: maphash.MakeSeed(), starting: map[SessionName]bool{}}
}

func (s *Sessions) lock(n SessionName) (unlock func()) {
	m := &s.changing[maphash.String(s.seed, n.Org+"\x00"+n.Principal)%uint64(len(s.changing))]
	m.Lock()
	return m.Unlock
}

// Find returns a session of a key, or nil.
func (s *Sessions) Find(ctx context.Context, n SessionName) (*journal.Conversation, error) {
	return findSession(ctx, s.kept, n)
}

func findSession(ctx context.Context, kept journal.Conversations, n SessionName) (*journal.Conversation, error) {
	if n.Principal == "" { // named conversations have none
		return nil, nil
	}
	return kept.Find(ctx, n.Org, n.Principal, namedKey(n.ID))
}

// readSession reads the session of a request, with which memory is charged; nil = there is none.
func readSession(ctx context.Context, kept journal.Conversations, req Request, memory *memlimit.Share) (*journal.Conversation, error) {
	c, err := findSession(ctx, kept, SessionName{req.Org, req.Principal, req.Continues.ID})
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", req.Continues.ID, err)
	}
	if c == nil {
		return nil, nil
	}
	n := eventlog.HeldBytes(c.Items)
	for _, text := range c.Full {
		n += len(text)
	}
	if err := memory.Acquire(n); err != nil {
		return nil, err
	}
	return c, nil
}

// resume returns what a request continues of its session, and the items that follow.
func resume(c *journal.Conversation, req Request) (history, []item.Item) {
	h := history{full: map[string]string{}, callIDs: map[string]string{}, inherited: map[string]bool{}}
	if c == nil {
		return h, req.Items
	}
	s := spliceSession(c.Items, req.Items, c.CallIDs)
	h.items, h.callIDs, h.listed, h.lastTarget = s.kept, maps.Clone(c.CallIDs), c.Listed, c.Target
	if h.callIDs == nil {
		h.callIDs = map[string]string{}
	}
	for id, text := range c.Full {
		if slices.ContainsFunc(s.kept, func(it item.Item) bool { return it.Kind == item.ToolResult && strings.Contains(it.Text(), id) }) {
			h.full[id], h.inherited[id] = text, true
		}
	}
	return h, s.fresh
}

// CheckLength returns a [fault.Error] for a session that is too long.
func CheckLength(member string, items []item.Item) error {
	if len(items) <= maxHistoryItems {
		return nil
	}
	return fault.New(fault.Invalid, "conversation_too_long", "%s: the session has more than %d items; start another one", member, maxHistoryItems).In(member)
}

func (s *Sessions) save(ctx context.Context, n SessionName, c journal.Conversation, ttl time.Duration) error {
	return s.kept.Save(ctx, n.Org, n.Principal, c, ttl, namedKey(n.ID))
}

// Delete deletes a session of a key, and reports whether there was one. A run of it goes on, and is not added to it.
func (s *Sessions) Delete(ctx context.Context, n SessionName) (bool, error) {
	if n.Principal == "" {
		return false, nil
	}
	c, err := s.Find(ctx, n)
	if err != nil && !errors.As(err, new(*journal.Unreadable)) {
		return false, err
	}
	was, err := s.kept.Delete(ctx, n.Org, n.Principal, namedKey(n.ID))
	if err == nil && was && c != nil && s.deleted != nil {
		s.deleted(n, Info(c).CreatedAt)
	}
	return was, err
}

// Busy is the error for a session whose run has not ended.
func Busy(id string) *fault.Error {
	f := fault.New(fault.Conflict, "session_busy", "session_id: a run of the session %q has not ended; send the request again when it has, or use another session", id).In("session_id")
	f.RetryAfter = time.Second
	return f
}

// busy reports whether the run of a stored session has not ended.
func (s *Sessions) busy(ctx context.Context, n SessionName, c *journal.Conversation) (bool, error) {
	s.mu.Lock()
	starting := s.starting[n]
	s.mu.Unlock()
	if starting || c == nil || c.RunID == "" || s.archive == nil {
		return starting, nil
	}
	head, err := s.archive.Head(ctx, n.Org, c.RunID)
	if errors.Is(err, org.ErrNotFound) {
		return false, nil
	} else if err != nil {
		return false, journal.ReadError(c.RunID, err)
	}
	return head.Summary.Status != journal.Done, nil
}

// Opened is a session whose run is about to be stored. Exactly one of Stored and Undo must be called.
type Opened struct {
	s    *Sessions
	name SessionName
	was  *journal.Conversation // nil = it is new

	Since      int64             // when the session began, in Unix milliseconds
	Remembered []loop.Remembered // tools that need no approval again
}

// Stored says that the run is stored.
func (o *Opened) Stored() { o.s.started(o.name) }

// Undo restores the session as it was.
func (o *Opened) Undo(ctx context.Context) error {
	defer o.s.started(o.name)
	if o.was == nil {
		_, err := o.s.Delete(ctx, o.name)
		return err
	}
	back := *o.was
	back.Version++
	err := o.s.save(ctx, o.name, back, Info(o.was).keptFor())
	if errors.Is(err, journal.ErrChanged) {
		return nil // it was deleted
	}
	return err
}

func (s *Sessions) started(n SessionName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.starting, n)
}

// Open begins a run of a session. was is the session as the request has read it; nil = there was none. Open
// returns journal.ErrChanged if it is another one now: then it must be read again. It returns [Busy] if it has a
// run that has not ended, and a *[journal.Submitted] if that one is for the same key.
func (s *Sessions) Open(ctx context.Context, n SessionName, was *journal.Conversation, runID string, ttl time.Duration, key *journal.SubmitKey) (*Opened, error) {
	defer s.lock(n)()
	busy, err := s.busy(ctx, n, was)
	if err != nil {
		return nil, err
	}
	if busy {
		if was != nil && key != nil {
			if of := Info(was).Key; of != nil && of.Principal == key.Principal && of.Key == key.Key {
				return nil, &journal.Submitted{RunID: was.RunID, Hash: of.Hash}
			}
		}
		return nil, Busy(n.ID)
	}
	now := s.now().UnixMilli()
	next := journal.Conversation{CallIDs: map[string]string{}}
	info := SessionInfo{CreatedAt: now}
	if was != nil {
		next, info = *was, Info(was)
	} else if err := s.makeRoom(ctx, n); err != nil {
		return nil, err
	}
	info.UpdatedAt, info.TTL, info.Key = now, storedTTL(ttl), key
	next.RunID, next.RequestJSON = runID, info.encode()
	if err := s.save(ctx, n, next, journal.Kept); err != nil {
		if errors.Is(err, org.ErrExists) {
			err = fmt.Errorf("session %s: %w", n.ID, journal.ErrChanged)
		}
		return nil, err
	}
	s.mu.Lock()
	s.starting[n] = true
	s.mu.Unlock()
	return &Opened{s, n, was, info.CreatedAt, info.Remembered}, nil
}

// storedTTL returns a time to live as SessionInfo has it.
func storedTTL(ttl time.Duration) int64 {
	if ttl >= journal.Kept {
		return 0
	}
	return max(ttl.Milliseconds(), 1)
}

// Added is what a run adds to its session.
type Added struct {
	Items   []item.Item // of the whole session
	Begin   int         // the index of the first one that is not stored with it
	Full    map[string]string
	CallIDs map[string]string // ids of the provider's, by ours
	Listed  []string
	Target  event.Target
}

// Close ends a run of a session. with is what it adds; nil = nothing, as the run has not ended well. remembered are the
// tools that need no approval in later runs of the session. A session that was deleted stays deleted, and one that has
// another run now is not changed. since is when the session of the run began: what calls of the run have left since it was deleted is
// removed, too. After an error, Close can be called again, and also after it has succeeded.
func (s *Sessions) Close(ctx context.Context, n SessionName, since int64, runID string, with *Added, remembered []loop.Remembered) error {
	for {
		c, err := s.Find(ctx, n)
		if err == nil && (c == nil || Info(c).CreatedAt != since) && since != 0 && s.deleted != nil {
			s.deleted(n, since)
		}
		if err != nil || c == nil || c.RunID != runID {
			return err
		}
		info := Info(c)
		if with != nil {
			c.Items, c.Full, c.Listed, c.Target = with.Items, with.Full, with.Listed, with.Target
			ids := maps.Clone(c.CallIDs)
			if ids == nil {
				ids = map[string]string{}
			}
			maps.Copy(ids, with.CallIDs)
			c.CallIDs = ids
			info.Runs = append(before(info.Runs, with.Begin), SessionRun{runID, with.Begin})
		}
		info.UpdatedAt, info.Remembered = s.now().UnixMilli(), remembered
		c.RequestJSON = info.encode()
		err = s.save(ctx, n, *c, info.keptFor())
		if err == nil || !errors.Is(err, journal.ErrChanged) || ctx.Err() != nil {
			return err
		}
	}
}

// Put stores a session that is not the work of a run, in place of one with the id. With unused it does so only if
// there is none, and otherwise returns org.ErrExists. It returns [Busy] for one whose run has not ended.
func (s *Sessions) Put(ctx context.Context, n SessionName, c journal.Conversation, ttl time.Duration, unused bool) (*journal.Conversation, error) {
	defer s.lock(n)()
	was, err := s.Find(ctx, n)
	if err != nil {
		return nil, err
	}
	if was != nil && unused {
		return nil, fmt.Errorf("session %s: %w", n.ID, org.ErrExists)
	}
	if busy, err := s.busy(ctx, n, was); err != nil || busy {
		if err == nil {
			err = Busy(n.ID)
		}
		return nil, err
	}
	now := s.now().UnixMilli()
	info := SessionInfo{CreatedAt: now, UpdatedAt: now, TTL: storedTTL(ttl)}
	c.Version, c.RunID, info.Runs = 0, "", before(Info(&c).Runs, len(c.Items))
	if was != nil {
		c.Version, info.CreatedAt = was.Version, Info(was).CreatedAt
	} else if err := s.makeRoom(ctx, n); err != nil {
		return nil, err
	}
	c.RequestJSON = info.encode()
	err = s.save(ctx, n, c, info.keptFor())
	if errors.Is(err, journal.ErrChanged) || errors.Is(err, org.ErrExists) {
		err = Busy(n.ID)
	}
	return &c, err
}

// Idle returns the error of [NotIdle] if the run of a stored session has not ended.
func (s *Sessions) Idle(ctx context.Context, n SessionName, c *journal.Conversation) error {
	busy, err := s.busy(ctx, n, c)
	if err == nil && busy {
		err = NotIdle(n.ID, cmp.Or(c.RunID, "which begins"))
	}
	return err
}

// Rewind takes a run, named by its id or by that of its segment, and everything after it out of a session. It returns the
// session, or nil if there is none, and otherwise the error of [NotIdle] or [NoRun].
func (s *Sessions) Rewind(ctx context.Context, n SessionName, run string) (*journal.Conversation, error) {
	defer s.lock(n)()
	c, err := s.Find(ctx, n)
	if err != nil || c == nil {
		return nil, err
	}
	if err := s.Idle(ctx, n, c); err != nil {
		return nil, err
	}
	info := Info(c)
	of := append(runsOf(run), run)
	i := slices.IndexFunc(info.Runs, func(r SessionRun) bool { return slices.Contains(of, r.ID) })
	if i < 0 {
		return nil, NoRun(n.ID, run)
	}
	c.Items = c.Items[:info.Runs[i].Begin]
	maps.DeleteFunc(c.Full, func(id, _ string) bool {
		return !slices.ContainsFunc(c.Items, func(it item.Item) bool { return it.Kind == item.ToolResult && strings.Contains(it.Text(), id) })
	})
	c.RunID = "" // an owner of it that has not noticed its end adds nothing again: see Close
	info.UpdatedAt, info.Key, info.Runs = s.now().UnixMilli(), nil, info.Runs[:i]
	c.RequestJSON = info.encode()
	if err := s.save(ctx, n, *c, info.keptFor()); !errors.Is(err, journal.ErrChanged) {
		return c, err
	}
	return nil, Busy(n.ID) // another process has begun a run
}

// makeRoom deletes the sessions of a key that were not used for the longest time, so that one more is at most the
// last that it may have. One whose run has not ended stays.
func (s *Sessions) makeRoom(ctx context.Context, n SessionName) error {
	lister, ok := s.kept.(journal.SessionLister)
	if !ok {
		return nil
	}
	all, err := lister.StoredSessions(ctx, n.Org, n.Principal)
	if err != nil {
		return err
	}
	excess := len(all) + 1 - MaxSessions
	for _, one := range all {
		if excess <= 0 {
			return nil
		}
		other := SessionName{n.Org, n.Principal, one.ID}
		c, err := s.Find(ctx, other)
		var bad *journal.Unreadable
		if err != nil && !errors.As(err, &bad) {
			return err
		}
		busy, err := s.busy(ctx, other, c)
		if err != nil {
			return err
		}
		if busy {
			continue
		}
		if _, err := s.Delete(ctx, other); err != nil {
			return err
		}
		excess--
	}
	if excess > 0 {
		return fault.New(fault.Limited, "too_many_sessions", "session_id: this API key has %d sessions, and a run of each has not ended; "+
			"wait until one has, or use one of them", MaxSessions).In("session_id")
	}
	return nil
}

// Turns returns where each turn of a session ends in its items: a turn begins with a message of the user. What stands in
// front of the first one belongs to it.
func Turns(items []item.Item) (ends []int) {
	isUser := func(it item.Item) bool { return it.Kind == item.Message && it.Role == item.User && byClient(it) }
	for i, it := range items {
		if isUser(it) && slices.ContainsFunc(items[:i], isUser) {
			ends = append(ends, i)
		}
	}
	if len(items) > 0 {
		ends = append(ends, len(items))
	}
	return ends
}
