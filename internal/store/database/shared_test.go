package database

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
)

// A turn stores what it adds to the prompt of the turn before, and a prompt is deleted with the last run that begins with it.
func TestAPromptIsStoredOnceAndDeletedWithItsLastRun(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	const turns = 300
	var said item.List
	run := func(i int) string { return fmt.Sprintf("run_%026d", i) }
	begin := func(i int, p journal.Prompt) (grew int64) {
		t.Helper()
		before := checkUsage(t, s, "a")
		facts := []loop.Fact{{Seq: 2, Epoch: 1, At: 1, Version: 1, Body: loop.InputAdded{ItemsRef: "input", By: loop.ByClient}},
			{Seq: 3, Epoch: 1, At: 1, Version: 1, Body: loop.Finished{Reason: event.Complete}}}
		beginRun(t, s, "a", run(i))
		batch := journal.Batch{Sync: true, Facts: facts, Rows: []journal.Row{{Ref: "input", Value: p}}}
		if err := s.Append(t.Context(), journal.Lease{Org: "a", RunID: run(i), Epoch: 1}, 1, batch); err != nil {
			t.Fatal(err)
		}
		return checkUsage(t, s, "a") - before
	}
	beginRun(t, s, "a", "first")
	atTurn20 := int64(0)
	for i := range turns {
		said = append(said, item.NewText(item.User, fmt.Sprint("question ", i)), item.NewText(item.Assistant, strings.Repeat("answer ", 50)))
		// Instructions that differ in each turn do not keep the rest from being shared.
		grew := begin(i, journal.Prompt{Front: item.List{item.NewText(item.System, fmt.Sprint("turn ", i))}, Rest: said})
		if i == 20 {
			atTurn20 = grew
		}
		if i > 20 && grew > atTurn20+16 {
			t.Fatalf("turn %d stored %d bytes, turn 20 stored %d", i, grew, atTurn20)
		}
	}
	begin(turns, journal.Prompt{Rest: said[:2*turns-100]}) // a branch
	before := rowsOf(t, s, "shared_lists")
	drop := func(runs ...string) (left int) {
		t.Helper()
		for _, id := range runs {
			if err := s.writer.perform(t.Context(), noOrg, func(x *tx) error {
				_, err := x.exec(`DELETE FROM runs WHERE org = 'a' AND run_id = ?`, id)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.clean(t.Context()); err != nil {
			t.Fatal(err)
		}
		checkUsage(t, s, "a")
		return rowsOf(t, s, "shared_lists")
	}
	if left := drop(run(10), run(100)); left != before {
		t.Errorf("%d prompts of %d are left, although later ones begin with all of them", left, before)
	}
	var last []string
	for i := turns - 50; i < turns; i++ {
		last = append(last, run(i))
	}
	if left := drop(last...); left != before-50 {
		t.Errorf("%d prompts of %d are left after the runs of 50 turns were deleted", left, before)
	}
	story, err := s.Load(t.Context(), "a", run(turns))
	var got item.List
	if err == nil {
		err = got.UnmarshalJSON(story.Rows["input"])
	}
	if err != nil || len(got) != 2*turns-100 {
		t.Errorf("the branch begins with %d items: %v", len(got), err)
	}
	var all []string
	for i := range turns + 1 {
		all = append(all, run(i))
	}
	if left := drop(all...); left != 0 {
		t.Errorf("%d prompts are left without a run", left)
	}
}

// What is missing of a list is no shorter list.
func TestAListOfWhichSomethingIsMissingIsDamage(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	key := journal.ConversationKey{Kind: journal.SessionID, ID: "conv_1"}
	var parts []string
	for i := range 100 {
		parts = append(parts, fmt.Sprintf("resp_%026d", i))
		c := journal.Conversation{Parts: parts, Version: int64(i)}
		if err := s.Save(t.Context(), "a", "", c, journal.Kept, key); err != nil {
			t.Fatal(err)
		}
	}
	if c, err := s.Find(t.Context(), "a", "", key); err != nil || !slices.Equal(c.Parts, parts) {
		t.Fatalf("found %v, %v", c, err)
	}
	for _, which := range []string{"min", "max"} {
		if err := s.writer.perform(t.Context(), noOrg, func(x *tx) error {
			_, err := x.exec(`DELETE FROM shared_lists WHERE elements = (SELECT ` + which + `(elements) FROM shared_lists)`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if c, err := s.Find(t.Context(), "a", "", key); !errors.As(err, new(*journal.Unreadable)) {
			t.Errorf("without the %s list: %v, %v", which, c, err)
		}
	}
}

// Conversations that were deleted leave no list, also where runs are kept for ever.
func TestListsThatNothingUsesAreDeleted(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	key := journal.ConversationKey{Kind: journal.SessionID, ID: "conv_1"}
	c := journal.Conversation{}
	for i := range 100 {
		c.Parts = append(c.Parts, fmt.Sprintf("resp_%026d", i))
	}
	if err := s.Save(t.Context(), "a", "", c, journal.Kept, key); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Delete(t.Context(), "a", "", key); err != nil || rowsOf(t, s, "shared_lists") != 1 {
		t.Fatal(err)
	}
	if n, err := s.DeleteForgotten(t.Context()); n != 0 || err != nil || rowsOf(t, s, "shared_lists") != 0 {
		t.Errorf("%d runs were deleted, %v, and %d lists are left", n, err, rowsOf(t, s, "shared_lists"))
	}
}
