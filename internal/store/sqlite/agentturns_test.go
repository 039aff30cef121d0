package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
)

func agentTurn(run string, number int, text string) AgentTurn {
	return AgentTurn{RunID: run, Number: number, Role: "user", Items: []item.Item{item.NewText(item.User, text)}}
}

// Tables are made, a turn is stored once, and conversations end. // J15
func TestAgentConversations(t *testing.T) {
	now := time.Now()
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "runs.db"), Now: func() time.Time { return now }})
	ann := AgentConversationKey{"local", "ann", "chat"}
	add := func(key AgentConversationKey, run string, number int, ttl time.Duration) {
		t.Helper()
		if err := s.AppendAgentTurn(t.Context(), key, agentTurn(run, number, fmt.Sprint(run, number)), 1000, ttl); err != nil {
			t.Fatal(err)
		}
	}
	texts := func(key AgentConversationKey, after int64, most int, bytes int64) string {
		t.Helper()
		turns, err := s.AgentTurns(t.Context(), key, after, most, bytes)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, turn := range turns {
			out = append(out, turn.Items[0].Text())
		}
		return strings.Join(out, " ")
	}
	for range 2 { // a run that is resumed
		for n := range 2 {
			add(ann, "a", n, time.Hour)
		}
	}
	add(ann, "b", 0, time.Hour)
	add(ann, "b", 1, time.Hour)
	add(AgentConversationKey{"local", "bob", "chat"}, "c", 0, 0)
	for _, c := range []struct {
		most  int
		bytes int64
		want  string
	}{{10, 1 << 20, "a0 a1 b0 b1"}, {4, 1 << 20, "a0 a1 b0 b1"}, {3, 1 << 20, "b0 b1"}, {2, 1 << 20, "b0 b1"}, {1, 1 << 20, ""}, {10, 300, "b0 b1"}} {
		if got := texts(ann, 0, c.most, c.bytes); got != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if err := s.SummarizeAgent(t.Context(), ann, "a", "They greeted."); err != nil {
		t.Fatal(err)
	}
	if err := s.SummarizeAgent(t.Context(), ann, "c", "x"); !errors.Is(err, org.ErrNotFound) {
		t.Errorf("the run of another conversation: %v", err)
	}
	if err := s.DescribeAgent(t.Context(), ann, "Greetings", []string{"ann", "agent"}, map[string]string{"ticket": "7"}); err != nil {
		t.Fatal(err)
	}
	got, err := s.AgentConversation(t.Context(), ann)
	if err != nil || got.Summary != "They greeted." || got.Title != "Greetings" || len(got.Participants) != 2 || got.Metadata["ticket"] != "7" ||
		texts(ann, got.SummarizedThrough, 10, 1<<20) != "b0 b1" || got.ExpiresAt != now.Add(time.Hour).UnixMilli() {
		t.Errorf("%+v, %v", got, err)
	}
	err = s.AppendAgentTurn(t.Context(), ann, agentTurn("b", 2, strings.Repeat("x", 1000)), 1000, time.Hour)
	if err == nil || !strings.Contains(err.Error(), "turn 2 of run b has") || texts(ann, 0, 10, 1<<20) != "a0 a1 b0 b1" {
		t.Error(err)
	}

	now = now.Add(time.Hour)
	if _, err := s.AgentConversation(t.Context(), ann); !errors.Is(err, org.ErrNotFound) {
		t.Errorf("expired: %v", err)
	}
	add(ann, "d", 0, time.Hour) // begins anew
	if got, err := s.AgentConversation(t.Context(), ann); err != nil || got.Summary != "" || texts(ann, 0, 10, 1<<20) != "d0" {
		t.Errorf("%+v, %v", got, err)
	}
	now = now.Add(2 * time.Hour)
	add(AgentConversationKey{"local", "eve", "chat"}, "e", 0, time.Hour)
	if n := rowsOf(t, s, "agent_turns"); n != 2 { // c and e: another write has deleted d
		t.Errorf("%d turns are stored", n)
	}
	now = now.Add(2 * time.Hour)
	if _, err := s.DeleteFinished(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if n := rowsOf(t, s, "agent_conversations"); n != 1 { // retention
		t.Errorf("%d conversations are stored", n)
	}
}

func TestTheListOfAgentConversations(t *testing.T) {
	now := time.Now()
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "runs.db"), Now: func() time.Time { return now }})
	for n := range 5 {
		now = now.Add(time.Duration(n%2) * time.Second) // some at the same moment
		if err := s.AppendAgentTurn(t.Context(), AgentConversationKey{"local", "ann", fmt.Sprint("c", n)}, agentTurn(fmt.Sprint(n), 0, "x"), 1000, 0); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for before := ""; ; {
		page, err := s.AgentConversations(t.Context(), "local", "ann", before, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, c := range page {
			got = append(got, c.ID)
		}
		before = page[len(page)-1].ID
	}
	if strings.Join(got, " ") != "c4 c3 c2 c1 c0" {
		t.Error(got)
	}
	if err := s.DeleteAgent(t.Context(), AgentConversationKey{"local", "ann", "c4"}); err != nil || rowsOf(t, s, "agent_turns") != 4 {
		t.Error(err)
	}
	if err := s.DeleteAgent(t.Context(), AgentConversationKey{"local", "bob", "c3"}); !errors.Is(err, org.ErrNotFound) {
		t.Error(err)
	}
}
