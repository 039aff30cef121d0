package conversation_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/store/memory"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// programs are sessions of programs whose time a test sets.
type programs struct {
	*testing.T
	*conversation.Chains
	kept *memory.Conversations
	now  time.Time
}

func newPrograms(t *testing.T) *programs {
	p := &programs{T: t, now: time.Now().Truncate(time.Millisecond)}
	now := func() time.Time { return p.now }
	p.kept = &memory.Conversations{Now: now}
	p.Chains = conversation.NewChains(p.kept, "local", now)
	return p
}

// add appends the turns of a run, each with the run and its number as text.
func (p *programs) add(n conversation.ChainName, run string, numbers ...int) {
	p.Helper()
	for _, number := range numbers {
		items := item.List{item.NewText(item.User, fmt.Sprint(run, number))}
		turn := journal.Conversation{RunID: run, Part: number + 1, Role: "user", Items: items}
		if err := p.Append(p.Context(), n, turn, time.Hour); err != nil {
			p.Fatal(err)
		}
	}
}

func (p *programs) texts(n conversation.ChainName, limit int) string {
	p.Helper()
	turns, _, err := p.Turns(p.Context(), n, limit)
	if err != nil && !errors.Is(err, conversation.ErrNoSession) {
		p.Fatal(err)
	}
	var out []string
	for _, turn := range turns {
		out = append(out, turn.Items[0].Text())
	}
	return strings.Join(out, " ")
}

func (p *programs) ok(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

var ann = conversation.ChainName{Caller: tool.CallerKey{ID: "ann"}, ID: "chat"}

// A turn is stored once, whole runs are read, and a session ends at its time. // J15
func TestSessionsOfPrograms(t *testing.T) {
	p := newPrograms(t)
	p.add(ann, "a", 0, 1)
	p.add(ann, "b", 0, 1)
	p.add(ann, "a", 0, 1) // a run that is resumed
	p.add(conversation.ChainName{Caller: tool.CallerKey{ID: "bob"}, ID: "chat"}, "c", 0)
	for limit, want := range map[int]string{10: "a0 a1 b0 b1", 4: "a0 a1 b0 b1", 3: "b0 b1", 2: "b0 b1", 1: ""} {
		if got := p.texts(ann, limit); got != want {
			t.Errorf("%d: %q", limit, got)
		}
	}
	p.ok(p.Summarize(t.Context(), ann, "a", "They greeted."))
	if err := p.Summarize(t.Context(), ann, "c", "x"); !errors.Is(err, conversation.ErrNoSession) {
		t.Errorf("the run of another session: %v", err)
	}
	created := p.now
	p.now = p.now.Add(time.Minute)
	p.ok(p.Describe(t.Context(), ann, "Greetings", []string{"ann", "agent"}, map[string]string{"ticket": "7"}))
	got, err := p.Info(t.Context(), ann)
	if err != nil || got.Summary != "They greeted." || got.Title != "Greetings" || len(got.Participants) != 2 ||
		got.Metadata["ticket"] != "7" || p.texts(ann, 10) != "b0 b1" ||
		!got.Updated.Equal(created) || !got.Expires.Equal(created.Add(time.Hour)) {
		t.Errorf("%+v, %v", got, err)
	}
	p.now = created.Add(time.Hour)
	if _, err := p.Info(t.Context(), ann); !errors.Is(err, conversation.ErrNoSession) {
		t.Errorf("expired: %v", err)
	}
	p.add(ann, "a", 0) // begins anew
	if got, err := p.Info(t.Context(), ann); err != nil || got.Summary != "" || p.texts(ann, 10) != "a0" {
		t.Errorf("%+v, %v", got, err)
	}
}

// A rewind takes a run and what follows out, and a summary of them, and a fork has what was there before.
func TestRewindAndFork(t *testing.T) {
	p := newPrograms(t)
	fork := conversation.ChainName{Caller: tool.CallerKey{ID: "ann"}, ID: "fork"}
	for _, run := range []string{"a", "b", "c"} {
		p.add(ann, run, 0, 1)
	}
	p.ok(p.Summarize(t.Context(), ann, "b", "Two runs."))
	p.now = p.now.Add(time.Minute)
	p.ok(p.Fork(t.Context(), ann, "fork", time.Hour))
	if err := p.Fork(t.Context(), ann, "fork", time.Hour); !errors.Is(err, org.ErrExists) {
		t.Error(err)
	}
	info, err := p.Info(t.Context(), fork)
	if err != nil || info.ID != "fork" || info.Summary != "Two runs." || !info.Created.Equal(p.now) ||
		!info.Expires.Equal(p.now.Add(time.Hour)) ||
		p.texts(fork, 9) != "c0 c1" {
		t.Errorf("%+v, %v", info, err)
	}
	err = p.Rewind(t.Context(), ann, "x")
	if !errors.Is(err, conversation.ErrNoSession) || err.Error() != "session chat does not contain run x" {
		t.Error(err)
	}
	p.ok(p.Rewind(t.Context(), ann, "c"))
	if info, err := p.Info(t.Context(), ann); err != nil || info.Summary == "" || strings.Join(info.Rewound, " ") != "c" {
		t.Errorf("%+v, %v", info, err)
	}
	p.ok(p.Rewind(t.Context(), ann, "b"))
	p.add(ann, "d", 0)
	info, err = p.Info(t.Context(), ann)
	if err != nil || info.Summary != "" || strings.Join(info.Rewound, " ") != "c b" || p.texts(ann, 9) != "a0 a1 d0" {
		t.Errorf("%+v %q, %v", info, p.texts(ann, 9), err)
	}
	p.ok(p.Summarize(t.Context(), fork, "a", "One run."))
	if got := p.texts(fork, 9); got != "b0 b1 c0 c1" {
		t.Errorf("the fork has %q", got)
	}
	leave, err := p.Reserve(fork)
	p.ok(err)
	for name, err := range map[string]error{
		"rewind": p.Rewind(t.Context(), fork, "a"), "fork": p.Fork(t.Context(), fork, "x", 0),
		"into": p.Fork(t.Context(), ann, "fork", 0), "delete": p.Delete(t.Context(), fork),
	} {
		if !errors.Is(err, conversation.ErrReserved) {
			t.Errorf("%s: %v", name, err)
		}
	}
	leave()
	p.ok(p.Rewind(t.Context(), fork, "a"))
	if _, err := p.Info(t.Context(), fork); err != nil || p.texts(fork, 9) != "" || p.texts(ann, 9) != "a0 a1 d0" {
		t.Errorf("nothing is left: %v", err)
	}
}
