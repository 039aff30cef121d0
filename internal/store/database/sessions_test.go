package database

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// sessionStore returns a store with an org o and its agent, and a session s.
func sessionStore(t *testing.T, caps org.Caps) *Store {
	t.Helper()
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db"), Caps: caps})
	if err := s.CreateOrg(t.Context(), org.Record{ID: "o"}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateAgent(t.Context(), agent.Agent{Org: "o", ID: "agent_1", Definition: agent.Definition{Name: "a", Model: "m"}}, org.Author{}); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateSession(t.Context(), agent.Session{Org: "o", ID: "sess_1", Agent: "agent_1", Principal: "p", CreatedAt: time.UnixMilli(5)}, false); err != nil {
		t.Fatal(err)
	}
	return s
}

// turn begins a run as the next turn of the session.
func turnOf(t *testing.T, s *Store, run, input string) error {
	t.Helper()
	turn := &journal.SessionTurn{Session: "sess_1", Version: 1, Rounds: 25, Input: journal.SessionInput{ID: input, Kind: "message", Principal: "p", Body: []byte(`{}`)}}
	b := journal.Batch{Sync: true, Opening: &journal.Opening{Turn: turn}, Facts: []loop.Fact{
		{Seq: 1, Version: loop.Version, Body: loop.Accepted{Org: "o", RunID: run, Policy: loop.Policy{Grade: loop.Durable}}},
	}}
	return s.Append(t.Context(), journal.Lease{Org: "o", RunID: run, Epoch: 1, Owner: "x"}, 0, b)
}

// A session has one turn at a time, and an input is delivered to the run that was accepted with it, or is not
// stored. Times of inputs rise. // P25
func TestATurnOfASessionIsAcceptedWithItsInput(t *testing.T) {
	s := sessionStore(t, org.Caps{})
	if err := turnOf(t, s, "run_a", "in_1"); err != nil {
		t.Fatal(err)
	}
	var busy *journal.SessionBusy
	if err := turnOf(t, s, "run_b", "in_2"); !errors.As(err, &busy) || busy.RunID != "run_a" {
		t.Fatalf("the second turn: %v", err)
	}
	if _, err := s.Head(t.Context(), "o", "run_b"); !errors.Is(err, org.ErrNotFound) {
		t.Errorf("the run that was refused is stored: %v", err)
	}
	end := journal.Batch{Sync: true, Facts: []loop.Fact{{Seq: 2, Version: loop.Version, Body: loop.Finished{Reason: "complete"}}}}
	if err := s.Append(t.Context(), journal.Lease{Org: "o", RunID: "run_a", Epoch: 1, Owner: "x"}, 1, end); err != nil {
		t.Fatal(err)
	}
	if err := turnOf(t, s, "run_c", "in_1"); err == nil {
		t.Error("an input was delivered twice")
	}
	if err := turnOf(t, s, "run_c", "in_3"); err != nil {
		t.Fatal(err)
	}
	all, _, err := s.SessionInputs(t.Context(), "o", "sess_1", 10, 0)
	if err != nil || len(all) != 2 || all[0].RunID != "run_a" || all[1].RunID != "run_c" || !all[0].CreatedAt.Before(all[1].CreatedAt) || all[1].ProcessedAt.IsZero() {
		t.Errorf("the inputs are %+v, %v", all, err)
	}
	one, turn, err := s.TurnOf(t.Context(), "o", "run_c")
	if err != nil || one.Turns != 2 || one.Status() != agent.Running || turn.Number != 2 || turn.Rounds != 25 {
		t.Errorf("the turn is %+v of %+v, %v", turn, one, err)
	}
	if _, _, err := s.TurnOf(t.Context(), "other", "run_c"); !errors.Is(err, org.ErrNotFound) {
		t.Errorf("another org finds the turn: %v", err)
	}
}

// What a session has said is kept beyond the cap of responses, and deleted with its agent. // H10 N12
func TestTheConversationOfASessionIsKeptAsLongAsIt(t *testing.T) {
	s := sessionStore(t, org.Caps{Responses: 2, Sessions: 1})
	if err := turnOf(t, s, "run_a", "in_1"); err != nil {
		t.Fatal(err)
	}
	own := []journal.ConversationKey{{Kind: journal.SessionID, ID: "sess_1"}, {Kind: journal.ResponseID, ID: "resp_a"}, {Kind: journal.ResponseID, ID: "resp_ap1"}}
	for _, k := range own[1:] {
		if err := s.Save(t.Context(), "o", "", journal.Conversation{RunID: "run_a"}, journal.Kept, k); err != nil {
			t.Fatal(err)
		}
	}
	others := 0
	for i := range 5 {
		if err := s.Save(t.Context(), "o", "", journal.Conversation{}, time.Hour, journal.ConversationKey{Kind: journal.ResponseID, ID: fmt.Sprint("resp_z", i)}); err != nil {
			t.Fatal(err)
		}
	}
	stored := func(k journal.ConversationKey) bool {
		c, err := s.Find(t.Context(), "o", "", k)
		if err != nil {
			t.Fatal(err)
		}
		return c != nil
	}
	for i := range 5 {
		if stored(journal.ConversationKey{Kind: journal.ResponseID, ID: fmt.Sprint("resp_z", i)}) {
			others++
		}
	}
	for _, k := range own {
		if !stored(k) {
			t.Errorf("%s was evicted", k)
		}
	}
	if others != 2 {
		t.Errorf("%d other responses are stored, want 2", others)
	}
	var capped *org.CapError
	if err := s.CreateSession(t.Context(), agent.Session{Org: "o", ID: "sess_2", Agent: "agent_1"}, false); !errors.As(err, &capped) {
		t.Errorf("the second session: %v", err)
	}
	if err := s.RemoveAgent(t.Context(), "o", "agent_1", org.Author{}); err != nil {
		t.Fatal(err)
	}
	for _, k := range own {
		if stored(k) {
			t.Errorf("%s is still there", k)
		}
	}
	if _, err := s.Session(t.Context(), "o", "sess_1"); !errors.Is(err, org.ErrNotFound) {
		t.Errorf("the session of a deleted agent: %v", err)
	}
	if all, _, err := s.SessionInputs(t.Context(), "o", "sess_1", 10, 0); err != nil || len(all) > 0 {
		t.Errorf("inputs are left: %+v, %v", all, err)
	}
}
