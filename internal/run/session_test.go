package run_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/item"
)

// sessionStore knows which runs have not ended.
type sessionStore struct {
	*memory.Conversations
	runs map[string]journal.Status
}

func (s sessionStore) AddingRun(ctx context.Context, orgID, id string) (string, error) {
	c, err := s.Find(ctx, orgID, "", journal.ConversationKey{Kind: journal.SessionID, ID: id})
	if err != nil || c == nil || s.runs[c.RunID] == "" || s.runs[c.RunID] == journal.Done {
		return "", err
	}
	return c.RunID, nil
}

type sessionBench struct {
	*testing.T
	*conversation.Sessions
	kept    sessionStore
	now     time.Time
	runs    map[string]journal.Status
	since   map[string]int64 // when the sessions of runs began
	deleted []int64          // when the sessions began of whose deletion was told
}

func newSessionBench(t *testing.T) *sessionBench {
	b := &sessionBench{T: t, now: time.UnixMilli(1_000_000), runs: map[string]journal.Status{}, since: map[string]int64{}}
	clock := func() time.Time { return b.now }
	b.kept = sessionStore{&memory.Conversations{Now: clock}, b.runs}
	b.Sessions = conversation.NewSessions(b.kept, clock, id.New, func(_ conversation.SessionName, since int64) { b.deleted = append(b.deleted, since) })
	return b
}

func session(id string) conversation.SessionName {
	return conversation.SessionName{Org: "a", Principal: "k", ID: id}
}

// find returns a session; nil = there is none.
func (b *sessionBench) find(id string) *journal.Conversation {
	b.Helper()
	c := b.head(id)
	if c != nil {
		b.ok(b.Read(b.Context(), session(id), c))
	}
	return c
}

// head returns a session without its items.
func (b *sessionBench) head(id string) *journal.Conversation {
	b.Helper()
	c, err := b.Find(b.Context(), session(id))
	b.ok(err)
	return c
}

// begin begins a run of a session.
func (b *sessionBench) begin(id, run string, ttl time.Duration) error {
	b.Helper()
	o, err := b.Open(b.Context(), session(id), b.head(id), run, ttl, nil)
	if err == nil {
		b.runs[run], b.since[run] = journal.Running, o.Since
		o.Stored()
	}
	return err
}

// end ends a run of a session that has said something; "" = it has failed.
func (b *sessionBench) end(id, run, said string) {
	b.Helper()
	var added *conversation.Added
	if said != "" {
		added = b.adds(run, said)
		if c := b.find(id); c != nil {
			added.Behind = c.Parts
		}
	}
	for range 2 { // the next owner of the run does it again
		if err := b.Close(b.Context(), session(id), b.since[run], run, added, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.runs[run] = journal.Done
}

// adds returns what a run adds that has said something, in front of everything that the session has.
func (b *sessionBench) adds(run, said string) *conversation.Added {
	return &conversation.Added{Conversation: journal.Conversation{RunID: run, Items: []item.Item{item.NewText(item.User, said)}}}
}

func (b *sessionBench) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// The 129th session of a key deletes the one that was not used for the longest time, unless its run has not ended. // J05
func TestAKeyHas128Sessions(t *testing.T) {
	b := newSessionBench(t)
	for n := range conversation.MaxSessions {
		id := fmt.Sprint("s", n)
		b.ok(b.begin(id, "run "+id, time.Hour))
		if n != 0 { // that of s0 waits
			b.end(id, "run "+id, "x")
		}
		b.now = b.now.Add(time.Millisecond)
	}
	b.runs["run s0"] = journal.Waiting
	b.ok(b.begin("s1", "again", time.Hour))
	b.end("s1", "again", "y")
	b.ok(b.begin("new", "run new", time.Hour))
	for id, want := range map[string]bool{"s0": true, "s1": true, "s2": false, "s3": true, "new": true} {
		if got := b.find(id) != nil; got != want {
			t.Errorf("%s is stored: %t", id, got)
		}
	}
	if err := b.Put(b.Context(), session("imported"), journal.Conversation{}, time.Hour); err != nil || b.find("s3") != nil {
		t.Errorf("an import deletes the next one: %v", err)
	}
}

// If no session can be deleted, a new one is refused. // J05
func TestBusySessionsAreNotDeleted(t *testing.T) {
	b := newSessionBench(t)
	for n := range conversation.MaxSessions {
		b.ok(b.begin(fmt.Sprint("s", n), fmt.Sprint("run ", n), time.Hour))
	}
	var refused *fault.Error
	if err := b.begin("new", "run", time.Hour); !errors.As(err, &refused) || refused.Reason != "too_many_sessions" || refused.Code != fault.Limited {
		t.Errorf("%v", err)
	}
	if err := b.begin("s0", "other", time.Hour); !errors.As(err, &refused) || refused.Reason != "session_busy" {
		t.Errorf("%v", err)
	}
}

// A session expires after its last use, and never while its run has not ended. // J05
func TestASessionExpires(t *testing.T) {
	b := newSessionBench(t)
	const ttl = 30 * time.Minute
	b.ok(b.begin("s", "r", ttl))
	b.now = b.now.Add(100 * ttl)
	b.end("s", "r", "x")
	b.now = b.now.Add(ttl - time.Millisecond)
	b.ok(b.begin("s", "failed", ttl))
	b.end("s", "failed", "")
	b.now = b.now.Add(ttl - time.Millisecond)
	if c := b.find("s"); c == nil || len(c.Items) != 1 {
		t.Fatalf("%+v", c)
	}
	b.now = b.now.Add(time.Millisecond)
	if c := b.find("s"); c != nil {
		t.Errorf("it has not expired: %+v", c)
	}
	b.ok(b.begin("kept", "r2", org.Forever))
	b.end("kept", "r2", "x")
	b.now = b.now.Add(1000 * time.Hour)
	if c := b.find("kept"); c == nil || conversation.Info(c).ExpiresAt() != 0 {
		t.Errorf("%+v", c)
	}
}

// A run that was not accepted leaves the session as it was. One that ends after its session was deleted, or has another
// run, changes nothing. // J04
func TestASessionIsChangedByItsRunOnly(t *testing.T) {
	b := newSessionBench(t)
	o, err := b.Open(b.Context(), session("s"), nil, "refused", time.Hour, nil)
	b.ok(err)
	if err := b.begin("s", "other", time.Hour); err == nil {
		t.Error("a session has two runs that begin")
	}
	b.ok(o.Undo(b.Context()))
	if b.find("s") != nil {
		t.Error("a session without a run is kept")
	}
	b.ok(b.begin("s", "r1", time.Hour))
	b.end("s", "r1", "one")
	before := b.head("s")
	o, err = b.Open(b.Context(), session("s"), before, "refused", time.Hour, nil)
	b.ok(err)
	b.ok(o.Undo(b.Context()))
	if c := b.find("s"); c.RunID != "r1" || c.Items[0].Text() != "one" || !reflect.DeepEqual(conversation.Info(c), conversation.Info(before)) {
		t.Errorf("%+v", c)
	}
	if _, err := b.Open(b.Context(), session("s"), before, "stale", time.Hour, nil); !errors.Is(err, journal.ErrChanged) {
		t.Errorf("what was read before: %v", err)
	}
	b.ok(b.begin("s", "r2", time.Hour))
	_, err = b.Delete(b.Context(), session("s"))
	b.ok(err)
	b.end("s", "r2", "two")
	if b.find("s") != nil {
		t.Error("a deleted session is back")
	}
	o, err = b.Open(b.Context(), session("t"), nil, "refused", time.Hour, nil)
	b.ok(err)
	elsewhere := conversation.NewSessions(b.kept, func() time.Time { return b.now }, id.New, nil) // of another process
	_, err = elsewhere.Open(b.Context(), session("t"), b.head("t"), "r3", time.Hour, nil)
	b.ok(err)
	b.ok(o.Undo(b.Context()))
	if c := b.head("t"); c == nil || c.RunID != "r3" {
		t.Errorf("the session of another process's run is %+v", c)
	}
	b.ok(b.begin("s", "r3", time.Hour))
	b.end("s", "r2", "two")
	if c := b.find("s"); len(c.Items) != 0 || c.RunID != "r3" {
		t.Errorf("%+v", c)
	}
}

// What calls of a run leave after its session was deleted is removed when the run ends. // J04
func TestTheEndOfARunTellsThatItsSessionWasDeleted(t *testing.T) {
	b := newSessionBench(t)
	b.ok(b.begin("s", "r1", time.Hour))
	b.end("s", "r1", "one")
	b.ok(b.begin("s", "r2", time.Hour))
	if len(b.deleted) != 0 {
		t.Errorf("nothing was deleted: %v", b.deleted)
	}
	_, err := b.Delete(b.Context(), session("s"))
	b.ok(err)
	first := b.since["r2"]
	b.end("s", "r2", "two")
	b.now = b.now.Add(time.Second)
	b.ok(b.begin("s", "r3", time.Hour))
	b.end("s", "r2", "")
	b.end("s", "r3", "three")
	if want := []int64{first, first, first, first, first}; !reflect.DeepEqual(b.deleted, want) { // the deletion, and four ends
		t.Errorf("told of %v, want %v", b.deleted, want)
	}
}

// A request that is sent again with its Idempotency-Key is for the run that the session has. // J04
func TestAKeyedRequestOfABusySessionIsForItsRun(t *testing.T) {
	b := newSessionBench(t)
	key := &journal.SubmitKey{Principal: "k", Key: "i", Hash: "h"}
	o, err := b.Open(b.Context(), session("s"), nil, "r", time.Hour, key)
	b.ok(err)
	o.Stored()
	b.runs["r"] = journal.Running
	var known *journal.Submitted
	if _, err := b.Open(b.Context(), session("s"), b.head("s"), "r2", time.Hour, key); !errors.As(err, &known) || known.RunID != "r" || known.Hash != "h" {
		t.Errorf("%v", err)
	}
}

// A request that edits a message in the middle of a part leaves the items in front of it. The part is cut, not copied, and
// forks share it. // J04 J08
func TestAnEditCutsAPartOfASession(t *testing.T) {
	b := newSessionBench(t)
	client := func(text string) item.Item {
		it := item.NewText(item.User, text)
		it.Native.Dialect = "chat"
		return it
	}
	answer := item.NewText(item.Assistant, "first answer")
	answer.Turn = 1
	b.ok(b.Put(t.Context(), session("s"), journal.Conversation{Items: []item.Item{client("one"), answer, client("two")}}, time.Hour))
	began, err := conversation.Begin(t.Context(), b.kept, nil, conversation.Request{
		Org: "a", Principal: "k", Continues: conversation.Ref{ID: "s", Resent: true},
		Items: []item.Item{client("one"), answer, client("edited"), answer, client("three")},
	}, nil)
	b.ok(err)
	stored := b.head("s").Parts
	if want := map[string]int{stored[0]: 2}; began.Before != 2 || !slices.Equal(began.Parts, stored) || !maps.Equal(began.Cut, want) {
		t.Fatalf("the run begins with %d items of %v, cut %v", began.Before, began.Parts, began.Cut)
	}
	b.ok(b.begin("s", "run_1", time.Hour))
	added := b.adds("run_1", "edited")
	added.Items[0].Native.Dialect = "chat"
	added.Behind, added.Cut = began.Parts, began.Cut
	b.ok(b.Close(t.Context(), session("s"), b.since["run_1"], "run_1", added, nil))
	b.runs["run_1"] = journal.Done
	if got := textsOf(b.find("s").Items); got != "one, first answer, edited" || b.head("s").Parts[0] != stored[0] {
		t.Errorf("the session has %s", got)
	}
	of, err := b.Fork(t.Context(), session("s"), "f", 1, time.Hour)
	b.ok(err)
	_, err = b.Delete(t.Context(), session("s"))
	b.ok(err)
	if got := textsOf(b.find("f").Items); got != "one, first answer" || of != 2 {
		t.Errorf("the fork of a session with %d turns has %s", of, got)
	}
}

func textsOf(items []item.Item) string {
	var texts []string
	for _, it := range items {
		texts = append(texts, it.Text())
	}
	return strings.Join(texts, ", ")
}
