package app_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	conversations "github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
	"github.com/turnpike-gateway/turnpike/internal/store/storetest"
)

// history is a stored conversation that requests continue.
type history struct {
	name  string
	named bool                                      // ID is that of a named conversation, and otherwise of the last response
	id    string                                    // what the next turn continues
	first string                                    // the segment of its first turn
	next  func(g *Gateway, id string) (last string) // sends a turn, and returns its segment
}

// grow adds copies of the first turn.
func (h *history) grow(t *testing.T, store *database.Store, turns int) {
	t.Helper()
	of := func(id string) journal.ConversationKey {
		return journal.ConversationKey{Kind: journal.ResponseID, ID: id}
	}
	first, err := store.Find(t.Context(), "o", "", of(h.first))
	if err != nil || first == nil {
		t.Fatalf("the first turn of %s: %v, %v", h.name, first, err)
	}
	var saves errgroup.Group
	var ids []string
	for range turns {
		c := *first
		c.Version, c.RunID = 0, id.New("run")
		ids = append(ids, conversations.SegmentID(c.RunID, ""))
		if !h.named {
			c.Previous, h.id = h.id, ids[len(ids)-1]
		}
		saves.Go(func() error {
			return store.Save(t.Context(), "o", "", c, journal.Kept, of(conversations.SegmentID(c.RunID, "")))
		})
	}
	if err := saves.Wait(); err != nil {
		t.Fatal(err)
	}
	if !h.named {
		return
	}
	if _, err := conversations.Change(t.Context(), store, "o", h.id, journal.Kept, func(c *journal.Conversation) bool {
		c.Parts = append(c.Parts, ids...)
		return true
	}); err != nil {
		t.Fatal(err)
	}
}

// histories begins one of each kind.
func histories(g *Gateway) []*history {
	made := func(g *Gateway, path, body string) (id string) {
		g.T.Helper()
		var r struct{ ID string }
		a := g.Send("POST", path, strings.NewReader(body))
		if err := json.Unmarshal(a.Body, &r); err != nil || a.Status != 200 {
			g.T.Fatalf("%s answered %d: %s", path, a.Status, a.Body)
		}
		return r.ID
	}
	respond := func(g *Gateway, more string) string {
		return made(g, "/v1/responses", `{"model":"m","input":"go"`+more+`}`)
	}
	chain := &history{name: "a chain", next: func(g *Gateway, id string) string { return respond(g, fmt.Sprintf(`,"previous_response_id":%q`, id)) }}
	chain.first = respond(g, "")
	chain.id = chain.first

	named := &history{name: "a conversation", named: true, next: func(g *Gateway, id string) string { return respond(g, fmt.Sprintf(`,"conversation":%q`, id)) }}
	named.id = made(g, "/v1/conversations", "{}")
	named.first = named.next(g, named.id)

	agent := Manage(g).NewAgent("")
	run := func(g *Gateway, more string) map[string]any {
		a := g.Send("POST", "/api/agents/"+agent+"/run/stream", strings.NewReader(`{"message":"go"`+more+`}`))
		return AgentFrames(g.T, a.Body)[0]
	}
	session := &history{name: "a session of an agent", named: true, next: func(g *Gateway, id string) string {
		return conversations.SegmentID(run(g, fmt.Sprintf(`,"session_id":%q`, id))["run_id"].(string), "")
	}}
	begun := run(g, "")
	session.id, session.first = begun["session_id"].(string), conversations.SegmentID(begun["run_id"].(string), "")
	return []*history{chain, named, session}
}

// The history that a turn continues is read by as many statements at turn 700 as at turn 10.
func TestTheStatementsThatReadAHistoryDoNotGrow(t *testing.T) {
	NoLeaks(t)
	data, sent := t.TempDir(), &storetest.Statements{}
	var before []string // that the model was asked
	messages := 0
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, r Received) {
		before, messages = sent.Take(), len(r.Decode(t).Messages)
		Says("yes").Write(w)
	})
	begin := func() *Gateway {
		o := app.Options{Store: func(o *database.Options) { o.Connector = sent.RecordAll }}
		return MustRunWith(t, data, Site{Upstream: up.URL}.Yaml(), Environment(), o)
	}
	g := begin()
	all, turns, atTurn10 := histories(g), 1, map[*history]int{}
	for _, turn := range []int{10, 700} {
		_ = g.Stop()
		store, err := database.Open(t.Context(), database.Options{Path: filepath.Join(data, app.DatabaseFile)})
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range all {
			h.grow(t, store, turn-1-turns)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		turns, g = turn, begin()
		for _, h := range all {
			sent.Take()
			last := h.next(g, h.id)
			if !h.named {
				h.id = last
			}
			var reads []string
			for _, sql := range before {
				writes := strings.HasPrefix(sql, "INSERT") || strings.HasPrefix(sql, "UPDATE") || strings.HasPrefix(sql, "DELETE")
				if !writes && strings.Contains(sql, "conversations") && strings.Contains(sql, "body") {
					reads = append(reads, sql)
				}
				if !writes && (strings.Contains(sql, "FROM orgs") || strings.Contains(sql, "settings")) {
					t.Errorf("turn %d of %s reads settings, which are in memory: %s", turn, h.name, sql)
				}
			}
			n := len(reads)
			if turn == 10 {
				atTurn10[h] = n
			}
			if n == 0 || n > 3 || n != atTurn10[h] {
				t.Errorf("turn %d of %s was read by %d statements, want at most 3 and as many as at turn 10:\n%s", turn, h.name, n, strings.Join(reads, "\n"))
			}
			if messages != 2*turn-1 {
				t.Errorf("turn %d of %s: the model got %d messages, want %d", turn, h.name, messages, 2*turn-1)
			}
		}
	}
}

// What a turn stores does not grow with the turns before it.
func TestATurnStoresWhatWasSaidInIt(t *testing.T) {
	NoLeaks(t)
	data := t.TempDir()
	up := NewUpstream(t, func(w http.ResponseWriter, _ *http.Request, r Received) { Says(strings.Repeat("yes ", 60)).Write(w) })
	g := MustRunWith(t, data, Site{Upstream: up.URL}.Yaml(), Environment(), app.Options{})
	reader, err := database.OpenReader(t.Context(), filepath.Join(data, app.DatabaseFile))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	stored := func() int64 {
		n, err := reader.Usage(t.Context(), "o")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, h := range histories(g) {
		var early int64
		for turn := 2; turn <= 120; turn++ {
			before := stored()
			last := h.next(g, h.id)
			if !h.named {
				h.id = last
			}
			switch grew := stored() - before; {
			case turn == 60:
				early = grew
			case turn > 100 && grew > early+1000: // facts that are written together are one row
				t.Fatalf("turn %d of %s stored %d bytes, turn 60 stored %d", turn, h.name, grew, early)
			}
		}
	}
}
