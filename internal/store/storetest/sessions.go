package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

func sessionCases() []rule { // P25
	return []rule{
		{"a session is stored as it was created", "with its snapshot, and an empty conversation that is kept", sessionStored},
		{"a session has one turn at a time", "the second is refused with the run of the first, and nothing of it is stored", sessionHasOneTurn},
		{"a turn has the agent of its message", "the session has it from then on, and that of a queued turn when it begins", sessionSnapshots},
		{"an input is delivered to one run", "its id and its key are known then", inputsOnce},
		{"times of inputs rise", "also if the clock is set back", inputTimes},
		{"a queued turn begins after those before it", "it cannot be claimed, alone or with others, while an earlier turn has not ended", turnsInOrder},
		{"a session that waits for a person keeps its queue", "a waiting run has not ended", queueBehindWaiting},
		{"a queued turn that is cancelled ends before the next one begins", "its message does not wait any more", cancelledTurn},
		{"an ordinary turn does not overtake", "it is refused while a message waits", noOvertaking},
		{"an interrupt waits until its run ends", "the run is listed for that long, also after a restart of its sender", interruptWaits},
		{"an input goes to the run of a turn", "in the batch of its fact, once for its key, and to no other run", deliveredToRun},
		{"a session of another org does not exist", "every method with an id", sessionForeign},
		{"sessions are listed in pages", "the latest updated first, with how many the query selects", sessionPages},
		{"sessions are capped", "deleting one makes room", sessionsCapped},
		{"a key may have half of the sessions of its org", "rounded up; deleting one makes room", sessionsOfAKeyCapped}, // A07
		{"deleting a session returns its runs that have not ended", "no turn begins afterwards, so none outlives the session; J03", sessionRemoved},
		{"runs that outlive their session are listed", "also queued ones, until it is recorded that they are to end; J03", orphanedRuns},
		{"a session has the sums of its runs", "added with the end of each, and those of another session are not touched", sessionSums},
		{"only an unused session is deleted as unused", "one that has begun a turn stays", unusedSession},
	}
}

// sessionOwnerCases are those of sessions and the orgs and agents that they are of.
func sessionOwnerCases() []rule {
	return []rule{
		{"a session is of an org and of an agent that exist", "an agent of the configuration file is not stored", sessionOfNone},
		{"an agent takes its sessions with it, and an org", "with turns, inputs and what was said; the runs stay", sessionsOfDeleted},
		{"runs that outlive their agent are listed", "as those that outlive their session; J03", orphanedByAgent},
	}
}

// session stores a session of the org's agent.
func (b *testBench) session(orgID, id string) agent.Session {
	b.Helper()
	b.step(time.Second)
	s := agent.Session{Org: orgID, ID: id, Agent: "agent_a", Principal: "p", Snapshot: agent.Snapshot{Agent: "agent_a", Version: 1}, Metadata: map[string]string{"a": "b"}, CreatedAt: b.now()}
	b.ok(b.Sessions.CreateSession(b.Context(), s, true))
	s.UpdatedAt = s.CreatedAt
	return s
}

// sessionOrg creates the org a with the session sess_1.
func (b *testBench) sessionOrg() agent.Session {
	b.Helper()
	b.createOrg("a")
	return b.session("a", "sess_1")
}

func message(id string) journal.SessionInput {
	return journal.SessionInput{ID: id, Kind: agent.InputMessage, Principal: "p", Body: json.RawMessage(`{"message":"` + id + `"}`)}
}

// turn makes a run the next turn of sess_1 of the org a, with the input in_RUN.
func (b *testBench) turn(run string, change ...func(*journal.SessionTurn)) (*author, error) {
	b.advance(time.Millisecond)
	b.step(time.Millisecond)
	t := journal.SessionTurn{Session: "sess_1", Principal: "p", Version: 1, Rounds: 25, Input: message("in_" + run)}
	for _, c := range change {
		c(&t)
	}
	a := b.author("a", run)
	body := accepted("a", run)
	body.Grade, body.Surface = loop.Durable, agent.Surface
	bodies := []loop.Body{body}
	if t.Queued {
		a.lease.Epoch, a.lease.Owner, body.Queued, body.Deferred = 0, "", true, true
		bodies[0] = body
	} else {
		bodies = append(bodies, input("input"))
	}
	err := a.append(a.Context(), journal.Batch{Sync: true, Opening: &journal.Opening{Turn: &t}}, bodies...)
	return a, err
}

func queuedTurn(t *journal.SessionTurn) { t.Queued = true }

func (b *testBench) begun(run string, change ...func(*journal.SessionTurn)) *author {
	b.Helper()
	a, err := b.turn(run, change...)
	b.ok(err)
	return a
}

// begin gives a queued turn that was claimed its input.
func (a *author) beginQueued() {
	a.Helper()
	a.lease.Epoch, a.lease.Owner = 1, owner
	a.write(loop.Resumed{By: owner, HandedOver: true})
	a.write(input("input"))
}

func (a *author) end() {
	a.Helper()
	a.write(loop.Finished{Reason: event.Complete})
}

// checkBusy fails the case unless err says that the session has the run.
func (b *testBench) checkBusy(err error, run string) {
	b.Helper()
	var busy *journal.SessionBusy
	if !errors.As(err, &busy) || busy.RunID != run || busy.Session != "sess_1" {
		b.Errorf("got %v, want the session busy with %s", err, run)
	}
}

// checkInputs fails the case unless sess_1 has these inputs: "id run", and "id run …" for one that waits.
func (b *testBench) checkInputs(want ...string) []agent.Input {
	b.Helper()
	all, total, err := b.Sessions.SessionInputs(b.Context(), "a", "sess_1", 100, 0)
	b.ok(err)
	var got []string
	byRun := map[string][]agent.Input{}
	for _, in := range all {
		byRun[in.RunID] = append(byRun[in.RunID], in)
		text := in.ID + " " + in.RunID
		if in.ProcessedAt.IsZero() {
			text += " …"
		}
		got = append(got, text)
	}
	if !slices.Equal(got, want) || total != len(want) {
		b.Errorf("the inputs are %q of %d, want %q", got, total, want)
	}
	for run, inputs := range byRun {
		of, err := b.Sessions.InputsOf(b.Context(), "a", "sess_1", run)
		b.ok(err)
		if diff := cmp.Diff(inputs, of); diff != "" {
			b.Errorf("inputs of the run %q (-want +got):\n%s", run, diff)
		}
	}
	if of, err := b.Sessions.InputsOf(b.Context(), "b", "sess_1", "run_1"); err != nil || len(of) > 0 {
		b.Errorf("another org has the inputs %v, %v", of, err)
	}
	return all
}

func (b *testBench) checkSession(run string, status agent.Status, turns int) agent.Session {
	b.Helper()
	s, err := b.Sessions.Session(b.Context(), "a", "sess_1")
	b.ok(err)
	if s.RunID != run || s.Status() != status || s.Turns != turns {
		b.Errorf("the session has the run %q, is %s and has %d turns; want %q, %s, %d", s.RunID, s.Status(), s.Turns, run, status, turns)
	}
	return s
}

func sessionStored(b *testBench) {
	want := b.sessionOrg()
	got, err := b.Sessions.Session(b.Context(), "a", "sess_1")
	b.ok(err)
	b.equal(got, want)
	c, err := b.Conversations.Find(b.Context(), "a", "", journal.ConversationKey{Kind: journal.SessionID, ID: "sess_1"})
	b.ok(err)
	if c == nil || len(c.Items) > 0 {
		b.Errorf("its conversation is %+v", c)
	}
}

func sessionOfNone(b *testBench) {
	b.sessionOrg()
	b.checkError(b.Sessions.CreateSession(b.Context(), agent.Session{Org: "none", ID: "sess_2"}, true), org.ErrNotFound)
	b.checkError(b.Sessions.CreateSession(b.Context(), agent.Session{Org: "a", ID: "sess_2", Agent: "agent_none"}, false), org.ErrNotFound)
	b.agent("a", "stored")
	b.ok(b.Sessions.CreateSession(b.Context(), agent.Session{Org: "a", ID: "sess_2", Agent: "agent_stored"}, false))
}

func sessionHasOneTurn(b *testBench) {
	b.sessionOrg()
	first := b.begun("r1")
	b.checkSession("r1", agent.Running, 1)
	_, err := b.turn("r2")
	b.checkBusy(err, "r1")
	b.checkMissing("a", "r2")
	b.checkInputs("in_r1 r1")
	first.end()
	b.checkSession("r1", agent.Idle, 1)
	b.begun("r2")
	s, turn, err := b.Sessions.TurnOf(b.Context(), "a", "r2")
	b.ok(err)
	if s.ID != "sess_1" || turn.Number != 2 || turn.Rounds != 25 || turn.Version != 1 {
		b.Errorf("the turn is %+v", turn)
	}
	_, err = b.turn("r3", func(t *journal.SessionTurn) { t.Session = "sess_none" })
	b.checkError(err, org.ErrNotFound)
	_, err = b.turn("r3", func(t *journal.SessionTurn) { t.Principal = "another" })
	b.checkError(err, org.ErrNotFound)
}

func sessionSnapshots(b *testBench) {
	b.sessionOrg()
	of := func(version int) func(*journal.SessionTurn) {
		text, err := json.Marshal(agent.Snapshot{Agent: "agent_a", Version: version})
		b.ok(err)
		return func(t *journal.SessionTurn) { t.Version, t.Snapshot = version, text }
	}
	first := b.begun("r1", of(2))
	if s := b.checkSession("r1", agent.Running, 1); s.Snapshot.Version != 2 {
		b.Errorf("the session has version %d", s.Snapshot.Version)
	}
	second := b.begun("r2", of(3), queuedTurn)
	if s := b.checkSession("r1", agent.Running, 2); s.Snapshot.Version != 2 {
		b.Errorf("with a queued turn the session has version %d", s.Snapshot.Version)
	}
	_, turn, err := b.Sessions.TurnOf(b.Context(), "a", "r2")
	b.ok(err)
	if turn.Snapshot == nil || turn.Snapshot.Version != 3 {
		b.Errorf("the queued turn is %+v", turn)
	}
	first.end()
	b.checkLeases(b.claim(owner, 10), "a/r2@1")
	second.beginQueued()
	if s := b.checkSession("r2", agent.Running, 2); s.Snapshot.Version != 3 {
		b.Errorf("the session has version %d", s.Snapshot.Version)
	}
}

func inputsOnce(b *testBench) {
	b.sessionOrg()
	keyed := func(t *journal.SessionTurn) { t.Input.Key, t.Input.Digest = "k", "d" }
	b.begun("r1", keyed).end()
	_, err := b.turn("r2", keyed)
	var known *journal.Submitted
	if !errors.As(err, &known) || known.RunID != "r1" || known.Hash != "d" {
		b.Errorf("a key that is known: %v", err)
	}
	if _, err := b.turn("r2", func(t *journal.SessionTurn) { t.Input.ID = "in_r1" }); err == nil {
		b.Error("an input was stored twice")
	}
	b.checkMissing("a", "r2")
	b.checkInputs("in_r1 r1")
}

func inputTimes(b *testBench) {
	b.sessionOrg()
	b.begun("r1").end()
	b.clock.Add(-int64(time.Hour / time.Millisecond))
	b.begun("r2").end()
	all := b.checkInputs("in_r1 r1", "in_r2 r2")
	if !all[0].CreatedAt.Before(all[1].CreatedAt) || all[1].ProcessedAt.Before(all[1].CreatedAt) {
		b.Errorf("the times are %v and %v, %v", all[0].CreatedAt, all[1].CreatedAt, all[1].ProcessedAt)
	}
}

func turnsInOrder(b *testBench) {
	b.sessionOrg()
	first, second, third := b.begun("r1"), b.begun("r2", queuedTurn), b.begun("r3", queuedTurn)
	b.queued("a", "other")
	b.checkInputs("in_r1 r1", "in_r2 r2 …", "in_r3 r3 …")
	b.checkLeases(b.claim("new", 10), "a/other@1")
	b.checkNotClaimed("r2", "r3")
	first.end()
	b.checkNotClaimed("r3")
	b.checkLeases(b.claim(owner, 10), "a/r2@1")
	b.checkLeases(b.claim("new", 10))
	second.beginQueued()
	b.checkInputs("in_r1 r1", "in_r2 r2", "in_r3 r3 …")
	b.checkLeases(b.claim("new", 10))
	second.end()
	b.checkLeases(b.claim(owner, 10), "a/r3@1")
	third.beginQueued()
	b.checkSession("r3", agent.Running, 3)
	third.end()
	b.checkInputs("in_r1 r1", "in_r2 r2", "in_r3 r3")
}

// checkNotClaimed fails the case if one of the runs can be claimed alone.
func (b *testBench) checkNotClaimed(runs ...string) {
	b.Helper()
	picker, is := b.Leases.(journal.Picker)
	if !is {
		return
	}
	for _, run := range runs {
		if _, claimed, err := picker.ClaimRun(b.Context(), "new", journal.RunKey{Org: "a", Run: run}); err != nil || claimed {
			b.Errorf("run %s is claimed: %t, %v", run, claimed, err)
		}
	}
}

func queueBehindWaiting(b *testBench) {
	b.sessionOrg()
	first := b.begun("r1")
	first.write(asked("w", 0, "s", 0), loop.Parked{})
	b.begun("r2", queuedTurn)
	b.checkSession("r1", agent.Waiting, 2)
	b.checkLeases(b.claim("new", 10))
	b.checkNotClaimed("r2")
}

func cancelledTurn(b *testBench) {
	b.sessionOrg()
	first, second, third := b.begun("r1"), b.begun("r2", queuedTurn), b.begun("r3", queuedTurn)
	second.write(loop.CancelRequested{Cause: event.Cancelled})
	b.checkInputs("in_r1 r1", "in_r2 r2", "in_r3 r3 …")
	b.checkLeases(b.claim("new", 10), "a/r2@1")
	first.end()
	b.checkNotClaimed("r3") // before r2 has ended
	b.checkLeases(b.claim(owner, 10))
	_, err := b.turn("r4")
	b.checkBusy(err, "r2")
	second.lease.Epoch, second.lease.Owner = 1, "new"
	second.end()
	b.checkLeases(b.claim(owner, 10), "a/r3@1")
	third.beginQueued()
	b.checkSession("r3", agent.Running, 3)
}

func noOvertaking(b *testBench) {
	b.sessionOrg()
	b.begun("r1").end()
	b.begun("r2", queuedTurn)
	_, err := b.turn("r3")
	b.checkBusy(err, "r2")
	b.checkSession("r1", agent.Idle, 2)
}

func interruptWaits(b *testBench) {
	b.sessionOrg()
	first := b.begun("r1")
	b.checkInterrupted()
	stop := message("in_stop")
	stop.Kind = agent.InputInterrupt
	b.begun("r2", queuedTurn, func(t *journal.SessionTurn) { t.Interrupt = &stop })
	b.checkInputs("in_r1 r1", "in_stop r1 …", "in_r2 r2 …")
	b.checkInterrupted("a/r1 p")
	b.checkLeases(b.claim("new", 10))
	first.write(loop.CancelRequested{Cause: event.Cancelled})
	b.checkInterrupted()
	b.checkInputs("in_r1 r1", "in_stop r1", "in_r2 r2 …")
	b.checkLeases(b.claim("new", 10))
	first.write(loop.Finished{Reason: event.Cancelled})
	b.checkLeases(b.claim(owner, 10), "a/r2@1")

	other := message("in_stop_2")
	other.Kind = agent.InputInterrupt
	b.session("a", "sess_2")
	b.begun("r3", queuedTurn, func(t *journal.SessionTurn) { t.Session, t.Interrupt = "sess_2", &other })
	b.checkInterrupted() // nothing was under way
}

func sessionSums(b *testBench) {
	b.sessionOrg()
	b.session("a", "sess_2")
	check := func(id string, want journal.SessionSpent) {
		b.Helper()
		s, err := b.Sessions.Session(b.Context(), "a", id)
		b.ok(err)
		found, _, err := b.Sessions.Sessions(b.Context(), "a", agent.SessionQuery{Limit: 10})
		b.ok(err)
		i := slices.IndexFunc(found, func(s agent.Session) bool { return s.ID == id })
		if s.Spent != want || i < 0 || found[i].Spent != want {
			b.Errorf("session %s has used %+v, and %+v in the list, want %+v", id, s.Spent, found, want)
		}
	}
	end := func(a *author, spent journal.SessionSpent) {
		b.Helper()
		b.ok(a.append(a.Context(), journal.Batch{Sync: true, SessionSpent: spent}, loop.Finished{Reason: event.Complete}))
	}
	first := b.begun("r1")
	check("sess_1", journal.SessionSpent{})
	end(first, journal.SessionSpent{ActiveMS: 1500, NanoUSD: 7})
	check("sess_1", journal.SessionSpent{ActiveMS: 1500, NanoUSD: 7})
	end(b.begun("r2"), journal.SessionSpent{ActiveMS: 500, NanoUSD: 3})
	check("sess_1", journal.SessionSpent{ActiveMS: 2000, NanoUSD: 10})
	check("sess_2", journal.SessionSpent{})
	last := b.begun("r3")
	b.ok(b.removeSession("a", "sess_1", false, "r3"))
	end(last, journal.SessionSpent{ActiveMS: 1}) // of no session
	check("sess_2", journal.SessionSpent{})
}

func orphanedRuns(b *testBench) {
	b.orphans(func() error { return b.removeSession("a", "sess_2", false, "r4") })
}

func orphanedByAgent(b *testBench) {
	b.orphans(func() error {
		b.agent("a", "a")
		return b.Agents.RemoveAgent(b.Context(), "a", "agent_a", org.Author{})
	})
}

// orphans deletes a session, and with remove another one whose run is r4.
func (b *testBench) orphans(remove func() error) {
	in := func(session string) func(*journal.SessionTurn) {
		return func(t *journal.SessionTurn) { t.Session = session }
	}
	b.sessionOrg()
	b.begun("r1").end()
	second := b.begun("r2")
	third := b.begun("r3", queuedTurn)
	b.session("a", "sess_2")
	fourth := b.begun("r4", in("sess_2"))
	b.checkOrphaned()
	b.ok(b.removeSession("a", "sess_1", false, "r2", "r3"))
	b.checkOrphaned("a/r2 key of a", "a/r3 key of a")
	b.ok(remove())
	b.checkOrphaned("a/r2 key of a", "a/r3 key of a", "a/r4 key of a")
	if first, err := b.Archive.OrphanedRuns(b.Context(), 1); err != nil || len(first) != 1 || first[0].RunID != "r2" {
		b.Errorf("one of them is %v, %v", first, err)
	}
	third.write(loop.CancelRequested{Cause: event.Cancelled})
	b.checkOrphaned("a/r2 key of a", "a/r4 key of a")
	second.end()
	b.checkOrphaned("a/r4 key of a")
	fourth.write(loop.CancelRequested{Cause: event.Cancelled})
	b.checkOrphaned()
	fourth.write(loop.Finished{Reason: event.Cancelled})
	b.checkOrphaned()
}

func (b *testBench) checkOrphaned(want ...string) {
	b.Helper()
	found, err := b.Archive.OrphanedRuns(b.Context(), 10)
	b.ok(err)
	var got []string
	for _, w := range found {
		got = append(got, fmt.Sprint(w.Org, "/", w.RunID, " ", w.Principal))
	}
	if !slices.Equal(got, want) {
		b.Errorf("orphaned are %q, want %q", got, want)
	}
}

func (b *testBench) checkInterrupted(want ...string) {
	b.Helper()
	found, err := b.Archive.InterruptedRuns(b.Context(), 10)
	b.ok(err)
	var got []string
	for _, w := range found {
		got = append(got, fmt.Sprint(w.Org, "/", w.RunID, " ", w.Principal))
	}
	if !slices.Equal(got, want) {
		b.Errorf("interrupted are %q, want %q", got, want)
	}
}

func deliveredToRun(b *testBench) {
	b.sessionOrg()
	first := b.begun("r1")
	steer := message("in_s")
	steer.Kind, steer.Key, steer.Digest = agent.InputSteer, "k", "d"
	deliver := func(a *author, session string) error {
		batch := journal.Batch{Sync: true, Rows: []journal.Row{{Ref: "input:in_s", Value: 1}}, Delivered: &journal.Delivered{Session: session, Input: steer}}
		return a.append(a.Context(), batch, loop.InputAdded{ItemsRef: "input:in_s", By: loop.ByOther})
	}
	b.ok(deliver(first, "sess_1"))
	b.checkInputs("in_r1 r1", "in_s r1")
	var known *journal.Submitted
	if err := deliver(first, "sess_1"); !errors.As(err, &known) || known.RunID != "r1" {
		b.Errorf("the same input again: %v", err)
	}
	first.checkStored()
	b.session("a", "sess_2")
	b.checkError(deliver(first, "sess_2"), org.ErrNotFound)
	b.checkError(deliver(b.begin("a", "no turn"), "sess_1"), org.ErrNotFound)
	first.end()
	b.checkInputs("in_r1 r1", "in_s r1")
}

func sessionForeign(b *testBench) {
	b.sessionOrg()
	b.begun("r1")
	b.createOrg("b")
	_, err := b.Sessions.Session(b.Context(), "b", "sess_1")
	b.checkError(err, org.ErrNotFound)
	_, _, err = b.Sessions.TurnOf(b.Context(), "b", "r1")
	b.checkError(err, org.ErrNotFound)
	b.checkError(b.removeSession("b", "sess_1", false), org.ErrNotFound)
	if found, total, err := b.Sessions.SessionTurns(b.Context(), "b", "sess_1", 10, 0); err != nil || total != 0 || len(found) > 0 {
		b.Errorf("the turns are %v of %d, %v", found, total, err)
	}
	if found, total, err := b.Sessions.SessionInputs(b.Context(), "b", "sess_1", 10, 0); err != nil || total != 0 || len(found) > 0 {
		b.Errorf("the inputs are %v of %d, %v", found, total, err)
	}
	if found, total, err := b.Sessions.Sessions(b.Context(), "b", agent.SessionQuery{Limit: 10}); err != nil || total != 0 || len(found) > 0 {
		b.Errorf("the sessions are %v of %d, %v", found, total, err)
	}
}

func sessionPages(b *testBench) {
	b.sessionOrg()
	b.session("a", "sess_2")
	third := b.session("a", "sess_3")
	b.begun("r1").end()
	ids := func(q agent.SessionQuery) (out []string, total int) {
		found, total, err := b.Sessions.Sessions(b.Context(), "a", q)
		b.ok(err)
		for _, s := range found {
			out = append(out, s.ID)
		}
		return out, total
	}
	for _, c := range []struct {
		q     agent.SessionQuery
		want  []string
		total int
	}{
		{agent.SessionQuery{Limit: 10}, []string{"sess_1", "sess_3", "sess_2"}, 3},
		{agent.SessionQuery{Limit: 1, Offset: 1}, []string{"sess_3"}, 3},
		{agent.SessionQuery{Limit: 10, MinTurns: 1}, []string{"sess_1"}, 1},
		{agent.SessionQuery{Limit: 10, CreatedBefore: third.CreatedAt}, []string{"sess_1", "sess_2"}, 2},
		{agent.SessionQuery{Limit: 10, Principal: "another"}, nil, 0},
		{agent.SessionQuery{Limit: 10, Agent: "agent_b"}, nil, 0},
	} {
		if got, total := ids(c.q); !slices.Equal(got, c.want) || total != c.total {
			b.Errorf("%+v selects %q of %d, want %q of %d", c.q, got, total, c.want, c.total)
		}
	}
	found, total, err := b.Sessions.SessionTurns(b.Context(), "a", "sess_1", 10, 0)
	if err != nil || total != 1 || found[0].RunID != "r1" {
		b.Errorf("the turns are %v of %d, %v", found, total, err)
	}
}

func sessionsCapped(b *testBench) {
	b.Store = b.maker.Capped(b.T, b.clocks(), org.Caps{Sessions: 1})
	b.sessionOrg()
	var capped *org.CapError
	err := b.Sessions.CreateSession(b.Context(), agent.Session{Org: "a", ID: "sess_2"}, true)
	if !errors.As(err, &capped) {
		b.Errorf("one session too many: %v", err)
	}
	b.ok(b.removeSession("a", "sess_1", false))
	b.session("a", "sess_2")
}

func sessionsOfAKeyCapped(b *testBench) {
	b.capped(org.Caps{Sessions: 5})
	add := func(principal, id string) error {
		return b.Sessions.CreateSession(b.Context(), agent.Session{Org: "a", ID: id, Principal: principal}, true)
	}
	for _, id := range []string{"s1", "s2", "s3"} {
		b.ok(add("ann", id))
	}
	b.checkCapError(add("ann", "s4"), "org_caps.sessions", 3)
	b.ok(add("ben", "s4"))
	b.ok(b.removeSession("a", "s1", false))
	b.ok(add("ann", "s5"))
	b.ok(add("ben", "s6"))
	b.checkCapError(add("ben", "s7"), "org_caps.sessions", 5)
}

func sessionsOfDeleted(b *testBench) {
	b.ok(b.Orgs.CreateOrg(b.Context(), org.Record{ID: "a"}, org.Author{}))
	b.agent("a", "a")
	b.session("a", "sess_1")
	b.begun("r1").end()
	b.ok(b.Agents.RemoveAgent(b.Context(), "a", "agent_a", org.Author{}))
	gone := func() {
		b.Helper()
		_, err := b.Sessions.Session(b.Context(), "a", "sess_1")
		b.checkError(err, org.ErrNotFound)
		c, err := b.Conversations.Find(b.Context(), "a", "", journal.ConversationKey{Kind: journal.SessionID, ID: "sess_1"})
		if err != nil || c != nil {
			b.Errorf("its conversation is %+v, %v", c, err)
		}
		b.checkInputs()
	}
	gone()
	b.checkStatus("a", "r1", journal.Done)
	b.session("a", "sess_1")
	b.ok(b.Orgs.DeleteOrg(b.Context(), "a", org.Author{}))
	gone()
}

// removeSession deletes a session whose runs must be those that have not ended.
func (b *testBench) removeSession(orgID, id string, unused bool, want ...string) error {
	b.Helper()
	unfinished, err := b.Sessions.RemoveSession(b.Context(), orgID, id, unused)
	if !slices.Equal(unfinished, want) {
		b.Errorf("the runs that have not ended are %v, want %v", unfinished, want)
	}
	return err
}

func sessionRemoved(b *testBench) {
	b.sessionOrg()
	b.begun("r1").end()
	b.begun("r2")
	b.ok(b.removeSession("a", "sess_1", true))
	b.ok(b.removeSession("a", "sess_1", false, "r2"))
	b.checkStatus("a", "r2", journal.Running)
	b.checkError(b.removeSession("a", "sess_1", false), org.ErrNotFound)
	if _, err := b.turn("r3"); !errors.Is(err, org.ErrNotFound) {
		b.Errorf("a turn of a session that was deleted: %v", err)
	}
}

func unusedSession(b *testBench) {
	b.sessionOrg()
	b.begun("r1").end()
	b.ok(b.removeSession("a", "sess_1", true))
	b.checkSession("r1", agent.Idle, 1)
	b.session("a", "sess_2")
	b.ok(b.removeSession("a", "sess_2", true))
	_, err := b.Sessions.Session(b.Context(), "a", "sess_2")
	b.checkError(err, org.ErrNotFound)
	b.ok(b.removeSession("a", "sess_2", true))
	b.checkError(b.removeSession("a", "sess_2", false), org.ErrNotFound)
}
