package conversation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
)

// A chat session is a conversation with parts of one key: a segment for each run, and the items of an import. Its clients
// resend the messages that they saw. A run that ends well adds its segment behind those that its request has left:
//
//	Begin ──► Open: RunID is the run, never expires ──► Close: a segment more, expires
//
// A session whose run has not ended is busy. No other run begins, and it is not deleted to keep a limit. Its parts are
// deleted with the last session that has them.

// MaxSessions is how many sessions a key can have. One more deletes the one that was not used for the longest time.
const MaxSessions = 128

// SessionInfo is what is stored of a session beside its items.
type SessionInfo struct {
	CreatedAt int64 `json:"created_at"` // Unix milliseconds
	UpdatedAt int64 `json:"updated_at"` // when it was last used
	TTL       int64 `json:"ttl_ms"`     // how long it is kept after that; 0 = until it is deleted

	Remembered []loop.Remembered `json:"remembered,omitempty"` // tools that need no approval again

	Key *journal.SubmitKey `json:"key,omitempty"` // of its latest run; nil = that has none
	Cut map[string]int     `json:"cut,omitempty"` // how many items are left of parts of which not all are
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

// Stored returns the id of the conversation that is the session.
func (n SessionName) Stored() string { return journal.SessionPrefix(n.Principal) + n.ID }

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
	now     func() time.Time
	newID   func(prefix string) string
	deleted func(n SessionName, since int64)

	// changing serialises what begins runs and adds sessions, by key. Each has room for one.
	changing [64]chan struct{}

	mu       sync.Mutex
	starting map[SessionName]bool // those whose run is not stored yet
}

// NewSessions returns Sessions. deleted is called for each session that was deleted, with when it began in Unix
// milliseconds, and again when its run ends; for one that has expired only if it has a run. nil = nothing is called.
func NewSessions(
	kept journal.Conversations, now func() time.Time, newID func(prefix string) string, deleted func(n SessionName, since int64),
) *Sessions {
	s := &Sessions{kept: kept, now: now, newID: newID, deleted: deleted, starting: map[SessionName]bool{}}
	for i := range s.changing {
		s.changing[i] = make(chan struct{}, 1)
	}
	return s
}

func (s *Sessions) lock(n SessionName) (unlock func()) {
	one := s.changing[crc32.ChecksumIEEE([]byte(n.Org+"\x00"+n.Principal))%uint32(len(s.changing))]
	one <- struct{}{}
	return func() { <-one }
}

// Find returns a session of a key without its items, or nil.
func (s *Sessions) Find(ctx context.Context, n SessionName) (*journal.Conversation, error) {
	return findSession(ctx, s.kept, n)
}

func findSession(ctx context.Context, kept journal.Conversations, n SessionName) (*journal.Conversation, error) {
	if n.Principal == "" { // named conversations have none
		return nil, nil
	}
	return kept.Find(ctx, n.Org, "", namedKey(n.Stored()))
}

// Read adds the items of a session and the ids of the provider's of their calls, by ours.
func (s *Sessions) Read(ctx context.Context, n SessionName, c *journal.Conversation) error {
	_, h, err := readSession(ctx, s.kept, n.Org, c, nil)
	c.Items, c.CallIDs = h.items, h.callIDs
	return err
}

// readSession reads the parts of a session, with which memory is charged, and all that they have.
func readSession(
	ctx context.Context, kept journal.Conversations, orgID string, c *journal.Conversation, memory *memlimit.Share,
) (found []part, h history, err error) {
	h = history{
		full: map[string]string{}, callIDs: map[string]string{}, inherited: map[string]bool{}, cut: map[string]int{}, version: c.Version,
	}
	found, err = readParts(ctx, kept, orgID, true, c.Parts, &conversationSize{memory: memory})
	slices.Reverse(found)
	cut := Info(c).Cut
	var all transcript
	for _, p := range found {
		if n, ok := cut[p.id]; ok {
			h.cut[p.id], p.Items = n, p.Items[:min(n, len(p.Items))]
		}
		all.add(p.Items)
		maps.Copy(h.callIDs, p.CallIDs)
	}
	h.items = all.items
	return found, h, err
}

// leave makes the parts those of the first n items of a session, and returns these parts.
func (h *history) leave(found []part, n int) []part {
	for _, p := range found {
		left := min(len(p.Items), n)
		switch n -= left; {
		case left == 0 && n == 0:
			delete(h.cut, p.id)
			continue
		case left < len(p.Items):
			h.cut[p.id], p.Items = left, p.Items[:left]
		}
		h.parts = append(h.parts, p.id)
	}
	return found[:len(h.parts)]
}

// resume returns what a request continues of its session, and the items that follow.
func resume(
	ctx context.Context, kept journal.Conversations, c *journal.Conversation, req Request, memory *memlimit.Share,
) (history, []item.Item, error) {
	if c == nil {
		c = &journal.Conversation{}
	}
	found, h, err := readSession(ctx, kept, req.Org, c, memory)
	if err != nil {
		return h, nil, fmt.Errorf("session %s: %w", req.Continues.ID, err)
	}
	s := spliceSession(h.items, req.Items, h.callIDs)
	h.items = s.kept
	found = h.leave(found, len(s.kept))
	added, end := make([]Addition, len(found)), 0
	for i, p := range found {
		added[i].Items = s.kept[end : end+len(p.Items)]
		end += len(p.Items)
		h.take(p.Conversation)
	}
	h.seen = h.items
	if items, ok := seen(found, added, req.Sees); ok && !answersHidden(history{seen: items, items: h.items, callIDs: h.callIDs}, s.fresh) {
		h.seen = items
	}
	h.place = placeBehind(found, added)
	return h, s.fresh, nil
}

// CheckLength returns a [fault.Error] for a session that is too long.
func CheckLength(member string, items []item.Item) error {
	if len(items) <= maxHistoryItems {
		return nil
	}
	return fault.New(fault.Invalid, "conversation_too_long", "%s: the session has more than %d items; start another one", member, maxHistoryItems).In(member)
}

func (s *Sessions) save(ctx context.Context, n SessionName, c journal.Conversation, ttl time.Duration) error {
	return s.kept.Save(ctx, n.Org, "", c, ttl, namedKey(n.Stored()))
}

// Delete deletes a session of a key, and reports whether there was one. A run of it goes on, and is not added to it.
func (s *Sessions) Delete(ctx context.Context, n SessionName) (bool, error) {
	c, err := s.Find(ctx, n)
	if err != nil && !errors.As(err, new(*journal.Unreadable)) {
		return false, err
	}
	was, err := Delete(ctx, s.kept, n.Org, n.Stored())
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

// busy returns the run of a session that has not ended, if it is known; "" = the session is idle.
func (s *Sessions) busy(ctx context.Context, n SessionName) (run string, err error) {
	s.mu.Lock()
	starting := s.starting[n]
	s.mu.Unlock()
	if starting {
		return "which begins", nil
	}
	return s.kept.(journal.Branches).AddingRun(ctx, n.Org, n.Stored())
}

// Opened is a session whose run is about to be stored. Exactly one of Stored and Undo must be called.
type Opened struct {
	s    *Sessions
	name SessionName
	was  *journal.Conversation // nil = it is new

	Version    int64             // of the session now
	Since      int64             // when the session began, in Unix milliseconds
	Remembered []loop.Remembered // tools that need no approval again
}

// Stored says that the run is stored.
func (o *Opened) Stored() { o.s.started(o.name) }

// Undo restores the session as it was.
func (o *Opened) Undo(ctx context.Context) error {
	defer o.s.started(o.name)
	if o.was == nil {
		was, err := o.s.kept.(journal.Branches).DeleteWith(ctx, o.name.Org, o.name.Stored(), o.Version, nil)
		if was && o.s.deleted != nil {
			o.s.deleted(o.name, o.Since)
		}
		if errors.Is(err, journal.ErrChanged) {
			return nil // the run of another process adds to it
		}
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
	busy, err := s.busy(ctx, n)
	if err != nil {
		return nil, err
	}
	if busy != "" {
		if was != nil && key != nil {
			if of := Info(was).Key; of != nil && of.Principal == key.Principal && of.Key == key.Key {
				return nil, &journal.Submitted{RunID: was.RunID, Hash: of.Hash}
			}
		}
		return nil, Busy(n.ID)
	}
	now := s.now().UnixMilli()
	next := journal.Conversation{}
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
	return &Opened{s, n, was, next.Version + 1, info.CreatedAt, info.Remembered}, nil
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
	journal.Conversation // its segment

	Behind []string       // the parts of the session that its request has left
	Cut    map[string]int // how many items are left of those of which not all are
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
		info.UpdatedAt, info.Remembered = s.now().UnixMilli(), remembered
		if with == nil {
			c.RequestJSON = info.encode()
			err = s.save(ctx, n, *c, info.keptFor())
		} else {
			info.Cut = with.Cut
			err = s.addPart(ctx, n, c, info, with.Behind, Segment{Run: runID}.ID(), with.Conversation)
		}
		if err == nil || !errors.Is(err, journal.ErrChanged) || ctx.Err() != nil {
			return err
		}
	}
}

// addPart stores a session with a part behind others that it has. Those that follow these are taken out.
func (s *Sessions) addPart(
	ctx context.Context, n SessionName, c *journal.Conversation, info SessionInfo, behind []string, id string, part journal.Conversation,
) error {
	dropped := slices.DeleteFunc(slices.Clone(c.Parts), func(old string) bool { return old == id || slices.Contains(behind, old) })
	part.Owner = n.Stored()
	c.Parts, c.RequestJSON = append(slices.Clip(behind), id), info.encode()
	saved := journal.Saved{Conversation: part, TTL: journal.Kept, Keys: []journal.ConversationKey{partKey(id)}}
	return s.kept.(journal.Branches).AddPart(ctx, n.Org, n.Stored(), saved, *c, info.keptFor(), partKeys(dropped))
}

// Put stores a session with the items and the ids of calls of c that is not the work of a run, in place of one with the id.
// It returns [Busy] for one whose run has not ended.
func (s *Sessions) Put(ctx context.Context, n SessionName, c journal.Conversation, ttl time.Duration) error {
	defer s.lock(n)()
	was, err := s.Find(ctx, n)
	if err != nil {
		return err
	}
	switch run, err := s.busy(ctx, n); {
	case err != nil:
		return err
	case run != "":
		return Busy(n.ID)
	}
	now := s.now().UnixMilli()
	info := SessionInfo{CreatedAt: now, UpdatedAt: now, TTL: storedTTL(ttl)}
	if was == nil {
		was = &journal.Conversation{}
		err = s.makeRoom(ctx, n)
	} else {
		info.CreatedAt, was.RunID = Info(was).CreatedAt, ""
	}
	if err == nil {
		err = s.addPart(ctx, n, was, info, nil, PartOf(s.newID(""), true), c)
	}
	if errors.Is(err, journal.ErrChanged) || errors.Is(err, org.ErrExists) {
		err = Busy(n.ID)
	}
	return err
}

// Fork stores a session of the key with the first turns of another one: see [Turns]; [AllTurns] are all. It returns how many
// turns the other one has, and stores nothing unless it has as many as turns, and these are not 0. The error wraps [ErrNoSession]
// or org.ErrExists, or is that of [NotIdle].
func (s *Sessions) Fork(ctx context.Context, n SessionName, id string, turns int, ttl time.Duration) (of int, err error) {
	defer s.lock(n)()
	for {
		c, err := s.idle(ctx, n)
		if err == nil && c == nil {
			err = ErrNoSession
		}
		if err != nil {
			return 0, err
		}
		found, h, err := readSession(ctx, s.kept, n.Org, c, nil)
		if err != nil {
			return 0, err
		}
		ends := Turns(h.items)
		switch of = len(ends); {
		case turns == AllTurns:
			h.leave(found, len(h.items))
		case turns == 0 || turns > of:
			return of, nil
		default:
			h.leave(found, ends[turns-1])
		}
		other, now := SessionName{n.Org, n.Principal, id}, s.now().UnixMilli()
		switch was, err := s.Find(ctx, other); {
		case err != nil:
			return of, err
		case was != nil:
			return of, fmt.Errorf("session %s: %w", id, org.ErrExists)
		}
		if err := s.makeRoom(ctx, other); err != nil {
			return of, err
		}
		info := SessionInfo{CreatedAt: now, UpdatedAt: now, TTL: storedTTL(ttl), Cut: h.cut}
		f := journal.Fork{ID: other.Stored(), From: n.Stored(), Version: c.Version, Shared: partKeys(h.parts)}
		f.Parts, f.RequestJSON = h.parts, info.encode()
		again, err := forked(ctx, n.ID, s.kept.(journal.Branches).Fork(ctx, n.Org, f, info.keptFor()))
		if !again {
			return of, err
		}
	}
}

// idle returns a session, or nil. The error is also that of [NotIdle].
func (s *Sessions) idle(ctx context.Context, n SessionName) (*journal.Conversation, error) {
	c, err := s.Find(ctx, n)
	if err == nil && c != nil {
		var run string
		if run, err = s.busy(ctx, n); run != "" {
			err = NotIdle(n.ID, run)
		}
	}
	return c, err
}

// Rewind takes a run, named by its id or by that of its segment, and everything after it out of a session. It returns the
// session, or nil if there is none, and otherwise the error of [NotIdle] or [NoRun].
func (s *Sessions) Rewind(ctx context.Context, n SessionName, run string) (*journal.Conversation, error) {
	defer s.lock(n)()
	if c, err := s.idle(ctx, n); c == nil || err != nil {
		return nil, err
	}
	c, _, err := rewind(ctx, s.kept, n.Org, n.Stored(), n.ID, run, func(c *journal.Conversation) time.Duration {
		info := Info(c)
		maps.DeleteFunc(info.Cut, func(part string, _ int) bool { return !slices.Contains(c.Parts, part) })
		c.RunID = "" // an owner of it that has not noticed its end adds nothing again: see Close
		info.UpdatedAt, info.Key = s.now().UnixMilli(), nil
		c.RequestJSON = info.encode()
		return info.keptFor()
	})
	return c, err
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
		switch run, err := s.busy(ctx, other); {
		case err != nil:
			return err
		case run != "":
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
