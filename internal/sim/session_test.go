package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
)

// session is a session of an agent, to which several people send messages without asking each other. All
// its turns have one model and one server.
type session struct {
	*client
	sid      string
	messages []*message
}

// message is sent again until its sender knows which run has it, or that it is refused.
type message struct {
	s      *session
	mark   string // that nothing else in the world says
	busy   run.WhenBusy
	script [][]string // the tools that the model asks for after it
	placed run.Placed // of the sender; zero = not known, or refused
	conns  []*conn
}

// marks of what is said in sessions.
const (
	messageMark = "msg=" // of a message
	wordMark    = "word="
	resultMark  = "res="  // of the result of a call
	hookMark    = "hook=" // of what a hook has put in place of something
)

// converse invents the sessions of a world.
func (w *world) converse(slots int) {
	if !w.swarm.sessions {
		return
	}
	for _, name := range orgs() {
		for n := range 2 {
			w.sessions = append(w.sessions, w.newSession(name, n, slots))
		}
	}
}

func (w *world) newSession(orgID string, n, slots int) *session {
	s := &session{client: w.newClient(orgID, 100+n, false, slots), sid: fmt.Sprintf("%s%s_s%d", agent.SessionPrefix, orgID, n)}
	s.talk, s.id = s, fmt.Sprintf("%s-s%d", orgID, n)
	l := &s.like
	l.Surface, l.Model, l.AgentSession, l.Attach = agent.Surface, s.model(), s.sid, true
	l.Policy.Grade, l.Policy.NoStore, l.Policy.Context, s.window = loop.Durable, false, loop.ContextPolicy{}, 0
	l.WaitFor = 0
	l.Policy.Continuations = 0
	l.Continues = conversation.Ref{ID: s.sid, Named: true, Member: "session_id", Code: "not_found"}
	l.Store = &run.StoreOptions{RequestJSON: []byte("{}"), Owner: s.sid, For: journal.Kept}
	r := w.chance("session", s.id)
	for i := range 3 + r.IntN(5) {
		m := &message{s: s, mark: fmt.Sprintf("%s%s-%d", messageMark, s.id, i)}
		m.busy = []run.WhenBusy{run.Reject, run.Enqueue, run.Steer, run.Interrupt}[r.IntN(4)]
		for range r.IntN(3) {
			var round []string
			for range 1 + r.IntN(2) {
				round = append(round, string(classes()[r.IntN(3)]))
			}
			m.script = append(m.script, round)
		}
		s.messages = append(s.messages, m)
	}
	one := agent.Session{Org: orgID, ID: s.sid, Agent: "agent", Principal: "p", Snapshot: agent.Snapshot{Agent: "agent", Version: 1}, CreatedAt: time.Now()}
	if err := w.store.sessions.CreateSession(context.Background(), one, true); err != nil {
		w.violate("session %s is not created: %v", s.sid, err)
	}
	return s
}

// said returns the message with a mark in a text, or nil.
func (s *session) said(text string) *message {
	for _, m := range s.messages {
		for _, word := range strings.Fields(text) {
			if word == m.mark {
				return m
			}
		}
	}
	return nil
}

// latest returns the last message that a prompt has, and how many answers follow it.
func (s *session) latest(items []item.Item) (m *message, answers int) {
	for _, it := range items {
		if it.Kind != item.Message {
			continue
		}
		if it.Role == item.Assistant {
			answers++
		} else if said := s.said(it.Text()); said != nil {
			m, answers = said, 0
		}
	}
	return m, answers
}

// request is the request of a message as a process decodes it.
func (m *message) request(p *process) *run.Request {
	req := m.s.client.request(p)
	key := &journal.SubmitKey{Principal: "p", Key: m.mark, Hash: "h" + m.mark}
	body, _ := json.Marshal(map[string]string{"message": m.mark})
	req.Key = key
	req.Items = []item.Item{item.NewText(item.User, "org="+m.s.org+" "+m.mark)}
	req.Turn = &journal.SessionTurn{
		Session: m.s.sid, Version: 1, Rounds: 25,
		Input: journal.SessionInput{ID: p.newID(agent.InputPrefix), Kind: agent.InputMessage, Principal: "p", Body: body, Key: "p " + key.Key, Digest: key.Hash},
	}
	return req
}

// live sends the message until its sender knows what has become of it, and then follows its run.
func (m *message) live() {
	w := m.s.w
	defer m.leave()
	r := w.chance("sends", m.mark)
	pause := between(r, 0, 100*time.Second)
	for {
		var p *process
		goesOn := w.wait(context.Background(), m.mark+" is sent", pause, func(chance *rand.Rand) {
			p = w.replicas[chance.IntN(replicas)].serving()
		})
		if !goesOn || p != nil && m.send(p, r) {
			break
		}
		pause = between(r, 100*time.Millisecond, 5*time.Second)
	}
	if m.placed.RunID == "" {
		return
	}
	w.book.placed(m)
	m.meddles(r)
	defer m.rewinds(r)
	for {
		var p *process
		goesOn := w.wait(context.Background(), m.mark+" is followed", between(r, 100*time.Millisecond, 5*time.Second), func(chance *rand.Rand) {
			p = w.replicas[chance.IntN(replicas)].serving()
		})
		if !goesOn || p != nil && m.follow(p, r) {
			return
		}
	}
}

func (m *message) leave() {
	w := m.s.w
	w.mu.Lock()
	delete(w.waits, m.mark)
	w.mu.Unlock()
	w.bus.ring()
}

// send sends the message once, and reports whether that was the last time.
func (m *message) send(p *process, r *rand.Rand) bool {
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if r.IntN(3) == 0 && !m.s.w.calm() {
		ctx, cancel = context.WithTimeout(ctx, between(r, time.Second/2, 20*time.Second))
	}
	defer cancel()
	m.trespass(p)
	placed, err := p.runner.Inbox().Place(ctx, m.request(p), m.busy)
	var f *fault.Error
	switch {
	case err == nil:
		m.placed = placed
		return true
	case p.isDead() || ctx.Err() != nil || errors.Is(err, errOver):
		return false
	case errors.As(err, &f) && f.Reason == "session_busy":
		if m.busy != run.Reject {
			m.s.w.violate("I16: %s, which does %s, is refused: %v", m.mark, m.busy, err)
		}
		m.s.w.saw("a message was refused: its session was busy")
		m.s.w.book.refused(m)
		return true
	case errors.As(err, &f) && (f.Code == fault.Limited || f.Code == fault.Unavailable):
		return false
	}
	m.s.w.violate("I16: %s is answered %v", m.mark, err)
	return true
}

// trespass sends a message to the session of another org.
func (m *message) trespass(p *process) {
	if m.s.w.chance("trespasses", m.mark, p.name).IntN(4) > 0 {
		return
	}
	req := m.request(p)
	for _, other := range orgs() {
		if other == m.s.org {
			continue
		}
		req.Org, req.Key = other, nil
		placed, err := p.runner.Inbox().Place(context.Background(), req, m.busy)
		if err == nil {
			m.s.w.violate("I11: org %s sends a message to session %s of org %s, and run %s has it", other, m.s.sid, m.s.org, placed.RunID)
		}
	}
}

// meddles cancels the run of some messages.
func (m *message) meddles(r *rand.Rand) {
	w := m.s.w
	if r.Float64() >= w.swarm.cancels/2 {
		return
	}
	var p *process
	if w.wait(context.Background(), m.mark+" is cancelled", between(r, time.Second, 30*time.Second), func(chance *rand.Rand) {
		p = w.replicas[chance.IntN(replicas)].serving()
	}) && p != nil && p.runner.Cancel(context.Background(), m.s.org, m.placed.RunID, org.Author{Principal: "meddler"}) == nil {
		w.book.cancelled(runKey{m.s.org, m.placed.RunID})
	}
}

// rewinds takes the run of some messages and everything after it out of the session, again and again until it is answered.
func (m *message) rewinds(r *rand.Rand) {
	w := m.s.w
	if r.IntN(5) > 0 {
		return
	}
	for range 3 {
		var p *process
		goesOn := w.wait(context.Background(), m.mark+" is rewound", between(r, 0, 10*time.Second), func(chance *rand.Rand) {
			p = w.replicas[chance.IntN(replicas)].serving()
		})
		if !goesOn {
			return
		}
		if p == nil {
			continue
		}
		_, dropped, err := conversation.Rewind(context.Background(), conversations{p: p}, m.s.org, m.s.sid, m.placed.RunID, journal.Kept)
		var f *fault.Error
		switch {
		case err == nil && len(dropped) > 0:
			w.saw("a session was rewound")
			return
		case errors.As(err, &f) && f.Reason == "run_not_found": // it added nothing, or the answer of the last try was lost
			return
		case errors.As(err, &f) && f.Reason == "session_busy":
			w.saw("a rewind was refused: its session was busy")
		case p.isDead(), errors.Is(err, errOver), errors.Is(err, errLost), errors.Is(err, errUnanswered), errors.Is(err, errKilled):
		default:
			w.violate("I20: the rewind before %s is answered %v, and drops %v", m.placed.RunID, err, dropped)
			return
		}
	}
}

// follow follows the run of the message once, and reports whether that was the last time.
func (m *message) follow(p *process, r *rand.Rand) bool {
	w := m.s.w
	ctx, cut := context.WithCancel(context.WithValue(context.Background(), follower{}, m.mark))
	defer cut()
	c := &conn{p: p, cut: cut}
	if r.Float64() < w.swarm.cuts && !w.calm() {
		c.most = 1 + r.IntN(12)
	}
	m.conns = append(m.conns, c)
	err := p.runner.Follow(ctx, eventlog.Follow{Org: m.s.org, RunID: m.placed.RunID}, c)
	var f *fault.Error
	switch {
	case c.finished():
		return true
	case p.isDead(), ctx.Err() != nil, errors.Is(err, errOver), errors.Is(err, errLost), errors.Is(err, errUnanswered), errors.Is(err, errKilled):
		return errors.Is(err, errOver)
	case errors.As(err, &f) && (f.Code == fault.Limited || f.Code == fault.Unavailable):
		return false
	case err == nil:
		w.violate("I8: %s follows run %s, and its events have no end", m.mark, m.placed.RunID)
	default:
		w.violate("I8: %s follows run %s and is answered %v", m.mark, m.placed.RunID, err)
	}
	return true
}

// conversations are those of the store, as a process reaches them.
type conversations struct {
	journal.Branches // of which worlds use what is below
	p                *process
}

// Save implements journal.Conversations.
func (c conversations) Save(ctx context.Context, orgID, principal string, one journal.Conversation, ttl time.Duration, keys ...journal.ConversationKey) error {
	w := c.p.w
	_, err := ask(ctx, c.p, "keeps", orgID+"/"+keys[0].ID, w.swarm.dying(w.swarm.store), func(*rand.Rand) (none, error) {
		one = w.store.saved(orgID, one, keys[0])
		err := w.store.conversations.Save(ctx, orgID, principal, one, ttl, keys...)
		if err == nil {
			w.store.late(orgID, keys[0].ID, one)
		}
		return none{}, err
	})
	return err
}

// Find implements journal.Conversations.
func (c conversations) Find(ctx context.Context, orgID, principal string, key journal.ConversationKey) (*journal.Conversation, error) {
	w := c.p.w
	return ask(ctx, c.p, "looks for", orgID+"/"+key.ID, w.swarm.store, func(*rand.Rand) (*journal.Conversation, error) {
		return w.store.conversations.Find(ctx, orgID, principal, key)
	})
}

// FindAll implements journal.Conversations.
func (c conversations) FindAll(ctx context.Context, orgID, principal string, keys []journal.ConversationKey, each func(int, *journal.Conversation) error) error {
	w := c.p.w
	_, err := ask(ctx, c.p, "looks for", orgID+"/"+keys[0].ID, w.swarm.store, func(*rand.Rand) (none, error) {
		return none{}, w.store.conversations.FindAll(ctx, orgID, principal, keys, each)
	})
	return err
}

// FindChain implements journal.Conversations.
func (c conversations) FindChain(ctx context.Context, orgID, principal, id string, each func(*journal.Conversation) error) error {
	w := c.p.w
	_, err := ask(ctx, c.p, "looks for", orgID+"/"+id, w.swarm.store, func(*rand.Rand) (none, error) {
		return none{}, w.store.conversations.FindChain(ctx, orgID, principal, id, each)
	})
	return err
}

// Delete implements journal.Conversations.
func (c conversations) Delete(ctx context.Context, orgID, principal string, key journal.ConversationKey) (bool, error) {
	w := c.p.w
	return ask(ctx, c.p, "drops", orgID+"/"+key.ID, w.swarm.dying(w.swarm.store), func(*rand.Rand) (bool, error) {
		return w.store.conversations.Delete(ctx, orgID, principal, key)
	})
}

// AddingRun implements journal.Branches.
func (c conversations) AddingRun(ctx context.Context, orgID, id string) (string, error) {
	w := c.p.w
	return ask(ctx, c.p, "looks for runs of", orgID+"/"+id, w.swarm.store, func(*rand.Rand) (string, error) {
		if w.mutation == noneBusy {
			return "", nil
		}
		return w.store.conversations.AddingRun(ctx, orgID, id)
	})
}

// DropParts implements journal.Branches.
func (c conversations) DropParts(
	ctx context.Context, orgID, id string, one journal.Conversation, ttl time.Duration, dropped []journal.ConversationKey, idle bool,
) error {
	w := c.p.w
	_, err := ask(ctx, c.p, "takes parts out of", orgID+"/"+id, w.swarm.dying(w.swarm.store), func(*rand.Rand) (none, error) {
		if w.mutation == deafRewinds {
			return none{}, nil
		}
		err := w.store.conversations.DropParts(ctx, orgID, id, w.store.left(orgID, one, dropped), ttl, dropped, idle && w.mutation != noneBusy)
		if err == nil {
			w.book.rewound(orgID, id, dropped)
		}
		return none{}, err
	})
	return err
}

// AddPart implements journal.Branches.
func (c conversations) AddPart(
	ctx context.Context, orgID, id string, part journal.Saved, one journal.Conversation, ttl time.Duration, dropped []journal.ConversationKey,
) error {
	w := c.p.w
	_, err := ask(ctx, c.p, "adds a part to", orgID+"/"+id, w.swarm.dying(w.swarm.store), func(*rand.Rand) (none, error) {
		if w.mutation == lostParts {
			return none{}, nil
		}
		part.Conversation = w.store.saved(orgID, part.Conversation, part.Keys[0])
		return none{}, w.store.conversations.AddPart(ctx, orgID, id, part, one, ttl, dropped)
	})
	return err
}

// DeleteWith implements journal.Branches.
func (c conversations) DeleteWith(ctx context.Context, orgID, id string, version int64, parts []journal.ConversationKey) (bool, error) {
	w := c.p.w
	return ask(ctx, c.p, "deletes", orgID+"/"+id, w.swarm.dying(w.swarm.store), func(*rand.Rand) (bool, error) {
		return w.store.conversations.DeleteWith(ctx, orgID, id, version, parts)
	})
}

// Fork implements journal.Branches.
func (c conversations) Fork(ctx context.Context, orgID string, f journal.Fork, ttl time.Duration) error {
	return c.fork(ctx, orgID, f, func() error { return c.p.w.store.conversations.Fork(ctx, orgID, f, ttl) })
}

// fork stores a fork as store does.
func (c conversations) fork(ctx context.Context, orgID string, f journal.Fork, store func() error) error {
	w := c.p.w
	_, err := ask(ctx, c.p, "forks", orgID+"/"+f.From, w.swarm.dying(w.swarm.store), func(*rand.Rand) (none, error) {
		w.store.forks[f.From] = append(w.store.forks[f.From], f.ID)
		return none{}, store()
	})
	return err
}

// everybody returns the clients, with those that speak for sessions.
func (w *world) everybody() []*client {
	all := slices.Clone(w.clients)
	for _, s := range w.sessions {
		all = append(all, s.client)
	}
	for _, t := range w.talks {
		for _, m := range t.all {
			all = append(all, m.client)
		}
	}
	return all
}
