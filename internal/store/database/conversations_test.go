package database

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/store/storetest"
	"github.com/turnpike-gateway/turnpike/item"
)

// A scan of the conversations for each step makes a chain of 700 segments a hundred times slower. A sort
// holds all bodies before the first one is charged.
func TestHistoriesAreReadByTheirKeysWithoutASort(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	const byKey = "SEARCH k USING INDEX sqlite_autoindex_conversation_keys_1 (org=? AND principal=? AND key=?)"
	const byConversation = "SEARCH c USING INDEX sqlite_autoindex_conversations_1 (org=? AND principal=? AND key=?)"
	const byDigest = "SEARCH l USING INDEX sqlite_autoindex_shared_lists_1 (org=? AND digest=?)"
	for query, want := range map[string][]string{
		findAll: {"SCAN j VIRTUAL TABLE INDEX 1:", byKey, byConversation},
		findChain: {
			"CO-ROUTINE chain", "SETUP", byKey, byConversation, "RECURSIVE STEP", "SCAN chain", byKey, byConversation,
			"SCAN chain", "SEARCH c USING INTEGER PRIMARY KEY (rowid=?)",
			// The ids of the parts of a segment, of which only those of the first segment of a chain can have many.
			"CORRELATED SCALAR SUBQUERY 5", "CO-ROUTINE chain", "SETUP", byDigest, "RECURSIVE STEP", "SCAN chain", byDigest,
			"USE TEMP B-TREE FOR string_agg(ORDER BY)", "SCAN chain",
		},
	} {
		got, err := list(t.Context(), s.db, func(row scanner) (detail string, err error) {
			var id, parent, unused int
			err = row.Scan(&id, &parent, &unused, &detail)
			return detail, err
		}, "EXPLAIN QUERY PLAN "+query, "o", "", "[]", 0)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("the plan of %s is\n%s\n%v", query, strings.Join(got, "\n"), err)
		}
	}
}

// SQLite cannot follow the previous segment of a body that it does not read.
func TestAChainWithASegmentThatSQLiteCannotRead(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	key := func(id string) journal.ConversationKey {
		return journal.ConversationKey{Kind: journal.ResponseID, ID: id}
	}
	deep := item.Item{Kind: item.Other, Native: item.Native{Dialect: "d", JSON: json.RawMessage(strings.Repeat("[", 1200) + strings.Repeat("]", 1200))}}
	previous := ""
	for _, id := range []string{"1", "2", "3"} {
		c := journal.Conversation{RunID: id, Items: item.List{deep}, CallIDs: map[string]string{}, Previous: previous}
		if err := s.Save(t.Context(), "o", "", c, time.Hour, key(id)); err != nil {
			t.Fatal(err)
		}
		previous = id
	}
	chain := func() (runs string, err error) {
		err = s.FindChain(t.Context(), "o", "", "3", func(c *journal.Conversation) error {
			if len(c.Items) != 1 || string(c.Items[0].Native.JSON) != string(deep.Native.JSON) {
				t.Errorf("segment %s has %d items", c.RunID, len(c.Items))
			}
			runs += c.RunID
			return nil
		})
		return runs, err
	}
	if runs, err := chain(); runs != "321" || err != nil {
		t.Errorf("found %q, %v", runs, err)
	}
	for body, owner := range map[string]string{
		`{"v":9,"items":7,"previous":"1","owner":"agent"}`: "agent",
		`{"v":1,"run_id":"2","previous":"1","items":7}`:    "",
		`{"v":1,"run_id":"2","prev`:                        "",
	} {
		if err := s.writer.perform(t.Context(), noOrg, func(t *tx) error {
			_, err := t.exec(`UPDATE conversations SET body = ? WHERE key = 'response:2'`, body)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		runs, err := chain()
		bad, is := errors.AsType[*journal.Unreadable](err)
		if runs != "3" || !is || bad.Key != key("2") || bad.Conversation.Owner != owner {
			t.Errorf("%s: found %q, %v", body, runs, err)
		}
		err = s.FindAll(t.Context(), "o", "", []journal.ConversationKey{key("1"), key("2")}, func(int, *journal.Conversation) error { return nil })
		if bad, is := errors.AsType[*journal.Unreadable](err); !is || bad.Key != key("2") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// A build before the schema 101 stored the sessions of chat clients whole.
func TestChatSessionsOfOldFilesAreMigrated(t *testing.T) {
	s := openStore(t, Options{Path: filepath.Join(t.TempDir(), "turnpike.db")})
	storetest.OldChatSessions(t, s, func() {
		text, err := fs.ReadFile(migrations, "migrations/00101_chat_sessions.sql")
		if err != nil {
			t.Fatal(err)
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down\n")
		err = s.writer.perform(t.Context(), noOrg, func(t *tx) error {
			_, err := t.exec(up)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		checkUsage(t, s, "a")
	})
	checkUsage(t, s, "a")
}
