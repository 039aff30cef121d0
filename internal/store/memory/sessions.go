package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// Sessions implements agent.Sessions. Its sessions are part of the journal, whose lock guards them. It knows no
// orgs and no agents: a session may name any. All fields are required.
type Sessions struct {
	Journal       *Journal
	Conversations *Conversations
}

type sessionKey struct{ org, id string }

// sessionRecord is a session with its turns and its inbox, each in their order.
type sessionRecord struct {
	agent.Session
	turns  []agent.SessionTurn
	inputs []*inputRecord
}

type inputRecord struct {
	agent.Input
	seq int64 // of all inputs
}

// keyOf returns the key of the conversation of a session.
func keyOf(id string) journal.ConversationKey {
	return journal.ConversationKey{Kind: journal.SessionID, ID: id}
}

// CreateSession implements agent.Sessions.
func (s *Sessions) CreateSession(ctx context.Context, one agent.Session, _ bool) error {
	return s.create(one, func() error {
		return s.Conversations.Save(ctx, one.Org, "", journal.Conversation{}, journal.Kept, keyOf(one.ID))
	})
}

// create stores a session, and its conversation with keep.
func (s *Sessions) create(one agent.Session, keep func() error) error {
	if err := s.add(one); err != nil {
		return err
	}
	err := keep()
	if err != nil {
		s.Journal.mu.Lock()
		defer s.Journal.mu.Unlock()
		delete(s.Journal.sessions, sessionKey{one.Org, one.ID})
	}
	return err
}

func (s *Sessions) add(one agent.Session) error {
	j := s.Journal
	j.mu.Lock()
	defer j.mu.Unlock()
	if caps := j.Caps; caps.Sessions > 0 {
		n, ofKey := 0, 0
		for key, s := range j.sessions {
			if key.org != one.Org {
				continue
			}
			n++
			if s.Principal == one.Principal {
				ofKey++
			}
		}
		switch {
		case n >= caps.Sessions:
			return caps.SessionsError()
		case ofKey >= caps.KeySessions():
			return caps.KeySessionsError()
		}
	}
	key := sessionKey{one.Org, one.ID}
	if j.sessions[key] != nil {
		return fmt.Errorf("session %s: %w", one.ID, org.ErrExists)
	}
	if j.sessions == nil {
		j.sessions = map[sessionKey]*sessionRecord{}
	}
	one.UpdatedAt, one.Turns, one.RunID, one.State = one.CreatedAt, 0, "", ""
	one.Metadata = maps.Clone(one.Metadata)
	if one.Metadata == nil {
		one.Metadata = map[string]string{}
	}
	j.sessions[key] = &sessionRecord{Session: one}
	return nil
}

// show returns a session as it is now. It is called with mu held.
func (j *Journal) show(r *sessionRecord) agent.Session {
	s := r.Session
	s.Metadata = maps.Clone(s.Metadata)
	if run := j.runs[runKey{s.Org, s.RunID}]; run != nil {
		s.State = run.head.Summary.State()
	}
	return s
}

// session is called with mu held.
func (j *Journal) session(orgID, id string) (*sessionRecord, error) {
	if r := j.sessions[sessionKey{orgID, id}]; r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("session %s: %w", id, org.ErrNotFound)
}

// Session implements agent.Sessions.
func (s *Sessions) Session(_ context.Context, orgID, id string) (agent.Session, error) {
	s.Journal.mu.Lock()
	defer s.Journal.mu.Unlock()
	r, err := s.Journal.session(orgID, id)
	if err != nil {
		return agent.Session{}, err
	}
	return s.Journal.show(r), nil
}

// Sessions implements agent.Sessions.
func (s *Sessions) Sessions(_ context.Context, orgID string, q agent.SessionQuery) ([]agent.Session, int, error) {
	s.Journal.mu.Lock()
	defer s.Journal.mu.Unlock()
	var all []agent.Session
	for key, r := range s.Journal.sessions {
		if key.org == orgID && q.Chooses(r.Session) {
			all = append(all, s.Journal.show(r))
		}
	}
	slices.SortFunc(all, func(a, b agent.Session) int {
		return cmp.Or(b.UpdatedAt.Compare(a.UpdatedAt), strings.Compare(b.ID, a.ID))
	})
	return page(all, q.Limit, q.Offset), len(all), nil
}

// SessionTurns implements agent.Sessions.
func (s *Sessions) SessionTurns(_ context.Context, orgID, id string, limit, offset int) ([]agent.SessionTurn, int, error) {
	s.Journal.mu.Lock()
	defer s.Journal.mu.Unlock()
	r := s.Journal.sessions[sessionKey{orgID, id}]
	if r == nil {
		return nil, 0, nil
	}
	all := slices.Clone(r.turns)
	slices.Reverse(all)
	return page(all, limit, offset), len(all), nil
}

// TurnOf implements agent.Sessions.
func (s *Sessions) TurnOf(_ context.Context, orgID, runID string) (agent.Session, agent.SessionTurn, error) {
	s.Journal.mu.Lock()
	defer s.Journal.mu.Unlock()
	if r, t := s.Journal.turnOf(runKey{orgID, runID}); r != nil {
		return s.Journal.show(r), t, nil
	}
	return agent.Session{}, agent.SessionTurn{}, fmt.Errorf("run %s of a session: %w", runID, org.ErrNotFound)
}

// turnOf returns the session of a run and the turn, or nil. It is called with mu held.
func (j *Journal) turnOf(key runKey) (*sessionRecord, agent.SessionTurn) {
	for of, r := range j.sessions {
		if of.org != key.org {
			continue
		}
		if i := slices.IndexFunc(r.turns, func(t agent.SessionTurn) bool { return t.RunID == key.run }); i >= 0 {
			return r, r.turns[i]
		}
	}
	return nil, agent.SessionTurn{}
}

// SessionInputs implements agent.Sessions.
func (s *Sessions) SessionInputs(_ context.Context, orgID, id string, limit, offset int) ([]agent.Input, int, error) {
	s.Journal.mu.Lock()
	defer s.Journal.mu.Unlock()
	r := s.Journal.sessions[sessionKey{orgID, id}]
	if r == nil {
		return nil, 0, nil
	}
	var all []agent.Input
	for _, in := range r.inputs {
		all = append(all, in.Input)
	}
	return page(all, limit, offset), len(all), nil
}

// InputsOf implements agent.Sessions.
func (s *Sessions) InputsOf(ctx context.Context, orgID, id, runID string) ([]agent.Input, error) {
	all, _, err := s.SessionInputs(ctx, orgID, id, math.MaxInt, 0)
	return slices.DeleteFunc(all, func(in agent.Input) bool { return in.RunID != runID }), err
}

// RemoveSession implements agent.Sessions.
func (s *Sessions) RemoveSession(_ context.Context, orgID, id string, unused bool) (unfinished []string, err error) {
	s.Journal.mu.Lock()
	r, err := s.Journal.session(orgID, id)
	switch {
	case err != nil:
		s.Journal.mu.Unlock()
		if unused {
			return nil, nil
		}
		return nil, err
	case unused && len(r.turns) > 0:
		s.Journal.mu.Unlock()
		return nil, nil
	}
	unfinished = s.Journal.orphan(r)
	delete(s.Journal.sessions, sessionKey{orgID, id})
	s.Journal.mu.Unlock()
	s.Conversations.dropSession(r)
	return unfinished, nil
}

// orphan notes and returns the runs of a session that have not ended. It is called with mu held.
func (j *Journal) orphan(r *sessionRecord) (runs []string) {
	for _, t := range r.turns {
		key := runKey{r.Org, t.RunID}
		if run := j.runs[key]; run != nil && run.head.Summary.Status != journal.Done {
			runs = append(runs, t.RunID)
			if j.orphans == nil {
				j.orphans = map[runKey]struct{}{}
			}
			j.orphans[key] = struct{}{}
		}
	}
	return runs
}

// OrphanedRuns implements journal.Archive.
func (j *Journal) OrphanedRuns(_ context.Context, limit int) (out []journal.WaitingRun, _ error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for key := range j.orphans {
		if run := j.runs[key]; run != nil && run.head.Summary.Status != journal.Done {
			out = append(out, journal.WaitingRun{Org: key.org, RunID: key.run, Principal: run.head.Summary.Principal})
		}
	}
	slices.SortFunc(out, func(a, b journal.WaitingRun) int {
		return cmp.Or(cmp.Compare(a.Org, b.Org), cmp.Compare(a.RunID, b.RunID))
	})
	return out[:min(len(out), limit)], nil
}

// dropSession deletes the conversation of a session: under its id and the ids that package conversation makes
// of those of the session and its runs.
func (c *Conversations) dropSession(r *sessionRecord) {
	if c == nil {
		return
	}
	_, suffix, _ := strings.Cut(r.ID, "_")
	mine := []string{r.ID, "items_" + suffix}
	for _, t := range r.turns {
		mine = append(mine, "resp_"+strings.TrimPrefix(t.RunID, "run_"))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(func(s *storedConversation) bool {
		k := s.keys[0]
		return k.org == r.Org && k.principal == "" && !c.sharedBeside(k, r.ID) && slices.ContainsFunc(mine, func(id string) bool { return k.ID == id || strings.HasPrefix(k.ID, id+"p") })
	})
}

// checkTurn returns why a run cannot become the next turn of a session.
func (j *Journal) checkTurn(key runKey, turn journal.SessionTurn) error {
	r, err := j.session(key.org, turn.Session)
	switch {
	case err != nil:
		return err
	case turn.Principal != "" && turn.Principal != r.Principal:
		return fmt.Errorf("session %s of another key: %w", turn.Session, org.ErrNotFound)
	}
	if current := j.unfinished(r, ""); current != "" && !turn.Queued {
		return &journal.SessionBusy{Session: r.ID, RunID: current}
	}
	return r.checkInput(turn.Input)
}

// busy returns the run of the session that has not ended; "" = none.
func (j *Journal) busy(r *sessionRecord) string {
	if s := j.show(r); s.Status() != agent.Idle {
		return s.RunID
	}
	return ""
}

// unfinished returns the run of the first turn that has not ended, of those before that of a run; "" = none. The run "" is
// that of the next turn.
func (j *Journal) unfinished(r *sessionRecord, before string) string {
	for _, t := range r.turns {
		if t.RunID == before {
			break
		}
		if run := j.runs[runKey{r.Org, t.RunID}]; run != nil && run.head.Summary.Status != journal.Done {
			return t.RunID
		}
	}
	return ""
}

// checkInput returns a *journal.Submitted if the session has an input with the key.
func (r *sessionRecord) checkInput(in journal.SessionInput) error {
	for _, known := range r.inputs {
		switch {
		case in.Key != "" && known.Key == in.Key:
			return &journal.Submitted{RunID: known.RunID, Hash: known.Digest}
		case known.ID == in.ID:
			return fmt.Errorf("input %s: %w", in.ID, org.ErrExists)
		}
	}
	return nil
}

func (j *Journal) checkDelivered(key runKey, d journal.Delivered) error {
	r, t := j.turnOf(key)
	if r == nil || t.Session != d.Session {
		return fmt.Errorf("run %s of session %s: %w", key.run, d.Session, org.ErrNotFound)
	}
	return r.checkInput(d.Input)
}

// beginTurn stores a turn that checkTurn has allowed.
func (j *Journal) beginTurn(key runKey, turn journal.SessionTurn) {
	r := j.sessions[sessionKey{key.org, turn.Session}]
	now := j.now().UTC()
	one := agent.SessionTurn{
		Session: r.ID, RunID: key.run, Number: len(r.turns) + 1, Version: turn.Version, Rounds: turn.Rounds, Reasoning: turn.Reasoning, CreatedAt: now,
	}
	snapshot, _ := agent.DecodeSnapshot(r.ID, turn.Snapshot) // which the surface has encoded
	busy := j.busy(r)
	if turn.Queued {
		one.Snapshot = snapshot
	} else if r.RunID = key.run; snapshot != nil {
		r.Snapshot = *snapshot
	}
	r.Turns, r.UpdatedAt = r.Turns+1, latest(r.UpdatedAt, now)
	r.turns = append(r.turns, one)
	if turn.Interrupt != nil && busy != "" {
		j.addInput(r, *turn.Interrupt, busy, false)
	}
	j.addInput(r, turn.Input, key.run, !turn.Queued)
}

func (j *Journal) addInput(r *sessionRecord, in journal.SessionInput, run string, processed bool) {
	at := j.now().UTC().Truncate(time.Millisecond)
	if n := len(r.inputs); n > 0 && !at.After(r.inputs[n-1].CreatedAt) {
		at = r.inputs[n-1].CreatedAt.Add(time.Millisecond) // strictly rising
	}
	j.inputs++
	one := &inputRecord{Input: agent.Input{SessionInput: in, RunID: run, CreatedAt: at}, seq: j.inputs}
	if processed {
		one.ProcessedAt = at
	}
	r.inputs = append(r.inputs, one)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// changeInbox stores what a batch changes in the inbox of the session of its run.
func (j *Journal) changeInbox(key runKey, opened bool, b journal.Batch) {
	if d := b.Delivered; d != nil {
		j.addInput(j.sessions[sessionKey{key.org, d.Session}], d.Input, key.run, true)
		return
	}
	begins, ends := false, false
	for _, f := range b.Facts {
		kind := f.Body.Kind()
		begins = begins || kind == loop.KindInputAdded
		ends = ends || kind == loop.KindCancelRequested || kind == loop.KindFinished
	}
	if !opened || !begins && !ends {
		return
	}
	if ends {
		delete(j.orphans, key)
	}
	r, turn := j.turnOf(key)
	if r == nil {
		return
	}
	r.Spent.ActiveMS += b.SessionSpent.ActiveMS
	r.Spent.NanoUSD += b.SessionSpent.NanoUSD
	now := j.now().UTC()
	waited := false
	for _, in := range r.inputs {
		if in.RunID == key.run && in.ProcessedAt.IsZero() {
			in.ProcessedAt, waited = latest(in.CreatedAt, now), true
		}
	}
	if !waited || !begins {
		return
	}
	r.RunID, r.UpdatedAt = key.run, latest(r.UpdatedAt, now)
	if turn.Snapshot != nil {
		r.Snapshot = *turn.Snapshot
	}
}

// notItsTurn reports whether the run is a queued turn of a session of which an earlier turn has not ended.
func (j *Journal) notItsTurn(key runKey, run *runRecord) bool {
	if run.head.Summary.Status != journal.Queued {
		return false
	}
	r, _ := j.turnOf(key)
	if r == nil {
		return false
	}
	if !slices.ContainsFunc(r.inputs, func(in *inputRecord) bool { return in.RunID == key.run && in.ProcessedAt.IsZero() }) {
		return false // it is to end, or has begun
	}
	return j.unfinished(r, key.run) != ""
}

// InterruptedRuns implements journal.Archive.
func (j *Journal) InterruptedRuns(_ context.Context, limit int) ([]journal.WaitingRun, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	first := map[journal.RunKey]*inputRecord{}
	for key, r := range j.sessions {
		for _, in := range r.inputs {
			of := journal.RunKey{Org: key.org, Run: in.RunID}
			run := j.runs[runKey{key.org, in.RunID}]
			if in.Kind == agent.InputInterrupt && in.ProcessedAt.IsZero() && run != nil && run.head.Summary.Status != journal.Done && first[of] == nil {
				first[of] = in
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(first), func(a, b journal.RunKey) int { return cmp.Compare(first[a].seq, first[b].seq) })
	var out []journal.WaitingRun
	for _, k := range keys[:min(len(keys), limit)] {
		out = append(out, journal.WaitingRun{Org: k.Org, RunID: k.Run, Principal: first[k].Principal})
	}
	return out, nil
}

// page returns the part of the list that a limit and an offset select; nil = nothing.
func page[T any](all []T, limit, offset int) []T {
	all = all[min(offset, len(all)):]
	if all = all[:min(limit, len(all))]; len(all) == 0 {
		return nil
	}
	return all
}
