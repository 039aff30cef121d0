package app_test

import (
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/app"
	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
	"github.com/turnpike-gateway/turnpike/internal/store/database"
)

// years is later than everything that is deleted after a time.
const years = 3 * 365 * 24 * time.Hour

// later opens the store of a gateway that has stopped, in a later year, for do.
func later(t *testing.T, data string, do func(*database.Store) error) {
	t.Helper()
	now := func() time.Time { return time.Now().Add(years) }
	store, err := database.Open(t.Context(), database.Options{Path: filepath.Join(data, app.DatabaseFile), Now: now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(do(store), store.Close()); err != nil {
		t.Fatal(err)
	}
}

// With an org, its agents, sessions, inputs, settings, keys and everything else are deleted that it
// has stored. Runs end at once; their records and the conversations of other APIs are deleted when the time of
// runs is over, and only the audit log stays. Every table with a column org is counted, also new ones. // J03 K07
func TestADeletedOrgLeavesOnlyItsAuditLog(t *testing.T) {
	NoLeaks(t)
	m := newMirror(t, "")
	before := m.rows("o")
	var streams []<-chan Answer
	for _, run := range m.other.chains["agent run"] {
		streams = append(streams, m.Follow(m.other.owner, run[0]))
	}
	m.Do("DELETE", "/api/orgs/other", "operator-key", "", 200)
	for i, stream := range streams {
		a := Wait(t, stream, "the end of a stream")
		all := AgentFrames(t, a.Body)
		if last := all[len(all)-1]; last["event"] != "complete" && last["event"] != "error" {
			t.Errorf("the stream of run %d ends with %v", i, last)
		}
	}
	ofRuns := []string{ // until the time of runs is over
		"approvals", "audit_checkpoints", "audit_log", "budgets", "conversation_keys", "conversations", "deleted_orgs", "forgotten_runs", "org_usage", "reservations",
		"run_facts", "run_rows", "runs", "shared_parts", "slices", "submit_keys", "usage_days", "usage_models", "usage_sums",
	}
	ComesTrue(t, "all runs of the org end", func() bool { return !strings.Contains(m.rows("other")["runs"], "finish_reason= ") })
	for table, rows := range m.rows("other") {
		if rows != "" && !slices.Contains(ofRuns, table) {
			t.Errorf("the deleted org has in %s\n%s", table, rows)
		}
		for _, session := range m.other.chains["session"] {
			if id := strings.TrimPrefix(session[0], "sess_"); table == "conversations" && (strings.Contains(rows, "Before.") || strings.Contains(rows, id)) {
				t.Errorf("conversations of sessions are left:\n%s", rows)
			}
		}
	}
	delete(before, "audit_log")
	m.unchanged("o", before)
	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	later(t, m.data, func(s *database.Store) error {
		_, err := s.DeleteForgotten(t.Context())
		return errors.Join(err, s.DeleteOrgData(t.Context(), time.Now().Add(2*years), func(string, int) {}))
	})
	for table, rows := range m.rows("other") {
		if rows != "" && !slices.Contains([]string{"audit_log", "audit_checkpoints", "deleted_orgs", "org_usage"}, table) {
			t.Errorf("after the time of runs, the deleted org has in %s\n%s", table, rows)
		}
		if table == "org_usage" && rows != "" && !strings.Contains(rows, "bytes=0 ") {
			t.Errorf("what the deleted org has stored is counted as %s", rows)
		}
	}
	for table, rows := range m.rows("o") {
		if was, seen := before[table]; seen && (rows == "") != (was == "") && !slices.Contains([]string{"audit_checkpoints", "reservations"}, table) {
			t.Errorf("the other org had in %s\n%s\nand has\n%s", table, was, rows)
		}
	}
}

// pair is a session whose run waits for an approval, and one whose model call is in progress.
type pair struct {
	*mirrorless
	agent    string
	sessions [2]string
	runs     [2]string
	streams  [2]<-chan Answer
}

// mirrorless is a gateway with the model of mirror, whose org has the fewest slots that the pair needs.
type mirrorless struct {
	mirror
	key, keyID string // of the pair
}

// newPair starts the runs with a key of their own.
func newPair(t *testing.T) *pair {
	m := &mirrorless{mirror: mirror{data: t.TempDir(), release: make(chan struct{})}}
	t.Cleanup(func() { close(m.release) })
	m.up = NewUpstream(t, m.model)
	m.tools = NewMCP(t, map[string]Handler{"pay": Echo})
	m.yaml = Site{Upstream: m.up.URL, Runtime: "concurrency: 1"}.Yaml()
	m.Documented = Manage(MustRunIn(t, m.data, m.yaml, Environment()))
	made := m.Do("POST", "/api/keys", "owner-key", `{"name":"app","role":"member"}`, 201)
	m.key, m.keyID = made["key"].(string), made["id"].(string)
	p := &pair{mirrorless: m}
	p.agent = m.NewAgent(fmt.Sprintf(`,"mcp_servers":[{"name":"shop","url":%q,"config":{"require_approval":"always"}}]`, m.tools.URL+"/mcp"))
	for i, message := range []string{"GATE", "HOLD"} {
		p.sessions[i], p.runs[i] = m.Leave(m.key, p.agent, fmt.Sprintf(`{"message":%q,"detached":true}`, message))
		p.Becomes(m.key, p.sessions[i], []string{"waiting", "running"}[i])
		p.streams[i] = m.Follow("owner-key", p.runs[i])
	}
	return p
}

// over fails the test unless both runs have ended for the reason, their streams say so in their last frame, and
// their slots are free.
func (p *pair) over(status string) {
	p.T.Helper()
	for i, stream := range p.streams {
		all := AgentFrames(p.T, Wait(p.T, stream, "the end of a stream").Body)
		last := all[len(all)-1]
		if last["event"] != "complete" || last["status"] != status || last["run_id"] != p.runs[i] {
			p.T.Errorf("the stream of run %d ends with %v", i, last)
		}
	}
	for table, rows := range p.rows("o") {
		if table == "runs" && strings.Contains(rows, "finish_reason= ") || table == "approvals" && strings.Contains(rows, "status=waiting") || table == "reservations" && rows != "" {
			p.T.Errorf("%s has\n%s", table, rows)
		}
	}
	if calls := p.tools.Of("tools/call"); len(calls) != 0 {
		p.T.Errorf("%d calls were executed", len(calls))
	}
	other := p.Do("POST", "/api/agents", "owner-key", `{"name":"other","model":"m"}`, 201)["id"].(string)
	if a := p.StreamAgent(other, `{"message":"END"}`); !strings.Contains(string(a.Body), `"content":"Done."`) {
		p.T.Errorf("another run got\n%s", a.Body)
	}
}

// gone fails the test unless nothing of the sessions is stored, and their ids do not exist.
func (p *pair) gone() {
	p.T.Helper()
	for i := range p.sessions {
		for _, path := range []string{"/api/sessions/" + p.sessions[i], "/api/sessions/" + p.sessions[i] + "/messages", "/api/agents/runs/" + p.runs[i], "/api/agents/runs/" + p.runs[i] + "/events"} {
			p.Do("GET", path, "owner-key", "", 404)
		}
		for table, rows := range p.rows("o") {
			if strings.HasPrefix(table, "session") && strings.Contains(rows, p.sessions[i]) || table == "conversations" && strings.Contains(rows, strings.TrimPrefix(p.sessions[i], "sess_")) {
				p.T.Errorf("%s has\n%s", table, rows)
			}
		}
	}
}

// With an agent its sessions are deleted, and their runs end: nothing is called for them, and their
// followers are told. // J03
func TestADeletedAgentEndsTheRunsOfItsSessions(t *testing.T) {
	NoLeaks(t)
	p := newPair(t)
	p.AsOwner("DELETE", "/api/agents/"+p.agent, "", 200)
	p.over("cancelled")
	p.gone()
}

// A session that is deleted ends its run. // J03
func TestADeletedSessionEndsItsRun(t *testing.T) {
	NoLeaks(t)
	p := newPair(t)
	p.Do("DELETE", "/api/sessions/"+p.sessions[0], p.key, "", 200)
	p.Do("DELETE", "/api/agents/"+p.agent+"/sessions/"+p.sessions[1], p.key, "", 200)
	p.over("cancelled")
	p.gone()
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	later(t, p.data, func(s *database.Store) error { _, err := s.DeleteForgotten(t.Context()); return err })
	for _, run := range p.runs {
		for table, rows := range p.rows("o") {
			if strings.Contains(rows, run) && table != "audit_log" {
				t.Errorf("%s has\n%s", table, rows)
			}
		}
	}
}

// A revoked key ends the runs of its sessions. The sessions stay, and those who manage the org go on
// with them. // K08 J13
func TestARevokedKeyEndsTheRunsOfItsSessions(t *testing.T) {
	NoLeaks(t)
	p := newPair(t)
	p.AsOwner("DELETE", "/api/keys/"+p.keyID, "", 200)
	p.over("cancelled")
	for i, session := range p.sessions {
		p.Do("GET", "/api/sessions/"+session, p.key, "", 401)
		if s := p.Becomes("owner-key", session, "idle"); s["stop_reason"] != "interrupted" {
			t.Errorf("session %d is %v", i, s)
		}
		if a := p.StreamAgent(p.agent, fmt.Sprintf(`{"message":"more","session_id":%q}`, session)); !strings.Contains(string(a.Body), `"content":"Done."`) {
			t.Errorf("session %d cannot be continued:\n%s", i, a.Body)
		}
	}
}

// retention_days deletes the runs of a session, and not what its next turn needs. // J02
func TestASessionOutlivesTheRecordsOfItsRuns(t *testing.T) {
	NoLeaks(t)
	up := NewUpstream(t, Script(Says("Blue."), Says("You said blue.")))
	data, yaml := t.TempDir(), Site{Upstream: up.URL}.Yaml()
	d := Manage(MustRunIn(t, data, yaml, Environment()))
	id := d.NewAgent("")
	start := AgentFrames(t, d.StreamAgent(id, `{"message":"My color?"}`).Body)[0]
	run, session := start["run_id"].(string), start["session_id"].(string)
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	later(t, data, func(s *database.Store) error {
		n, err := s.DeleteFinished(t.Context(), time.Now().Add(years/3*2))
		if n != 1 {
			t.Errorf("%d runs were deleted", n)
		}
		return err
	})
	d = Manage(MustRunIn(t, data, yaml, Environment()))
	if text := storedTexts(t, data, "run_facts", "run_rows"); strings.Contains(text, run) {
		t.Errorf("of the run is left:\n%s", text)
	}
	if got := d.AsOwner("GET", "/api/agents/runs/"+run, "", 200); got["status"] != "deleted" {
		t.Errorf("the run is %v", got)
	}
	if got := Elements(d.AsOwner("GET", "/api/sessions/"+session+"/messages", "", 200)["messages"]); len(got) != 2 {
		t.Errorf("the messages are %v", got)
	}
	d.StreamAgent(id, fmt.Sprintf(`{"message":"And?","session_id":%q}`, session))
	var said []string
	for _, m := range up.Requests()[1].Decode(t).Messages {
		said = append(said, m.Role+" "+m.Content)
	}
	if got := strings.Join(said, "|"); got != "user My color?|assistant Blue.|user And?" {
		t.Errorf("the second turn saw %s", got)
	}
	if s := d.AsOwner("GET", "/api/sessions/"+session, "", 200); s["run_count"] != 2.0 || s["status"] != "idle" {
		t.Errorf("the session is %v", s)
	}
	d.AsOwner("GET", "/api/sessions/"+session+"/runs", "", 200)
	d.AsOwner("DELETE", "/api/sessions/"+session, "", 200)
}

// storedTexts returns all rows of tables of the org o.
func storedTexts(t *testing.T, data string, tables ...string) string {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(data, app.DatabaseFile)+"?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var b strings.Builder
	for _, table := range tables {
		fmt.Fprintln(&b, strings.Join(rowsOf(t, db, table, "o"), "\n"))
	}
	return b.String()
}
