package storetest_test

import (
	"encoding/json"
	"fmt"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/store/storetest"
)

// session creates, reads or removes a session, begins a turn of one, or delivers an input to the run of a turn.
func (p *randomOps) session() (string, []answer) {
	ctx := p.t.Context()
	orgID, id := p.org(), fmt.Sprint("sess_", p.rand.IntN(6))
	p.fresh++
	switch n := p.rand.IntN(12); {
	case n < 2:
		one := agent.Session{
			Org: orgID, ID: id, Agent: "agent_a", Principal: p.principal(), CreatedAt: p.now,
			Snapshot: agent.Snapshot{Agent: "agent_a", Version: 1}, Metadata: map[string]string{"n": fmt.Sprint(p.fresh)},
		}
		return "create session", p.only(func(s storetest.Store) error { return s.Sessions.CreateSession(ctx, one, true) })
	case n < 3:
		unused := p.coin()
		return "remove session", p.both(func(s storetest.Store) (any, error) { return s.Sessions.RemoveSession(ctx, orgID, id, unused) })
	case n < 6:
		return "session", p.both(func(s storetest.Store) (any, error) {
			one, err := s.Sessions.Session(ctx, orgID, id)
			if err != nil {
				return nil, err
			}
			turns, _, err := s.Sessions.SessionTurns(ctx, orgID, id, 100, 0)
			if err != nil {
				return nil, err
			}
			inputs, _, err := s.Sessions.SessionInputs(ctx, orgID, id, 100, 0)
			return []any{one, turns, inputs}, err
		})
	}
	if len(p.turns) == 0 || p.rand.IntN(2) == 0 {
		return p.turn(journal.Lease{Org: orgID, RunID: fmt.Sprint("t", p.fresh)}, id)
	}
	key := p.turns[max(0, len(p.turns)-1-p.rand.IntN(8))]
	if p.coin() {
		lease := key
		if lease.Epoch = p.epoch(key); lease.Epoch > 0 {
			lease.Owner = p.owner()
		}
		return "end turn", p.append(key, lease, p.ends[key], journal.Batch{}, loop.Finished{Reason: event.Complete})
	}
	return p.deliver(key, id)
}

func (p *randomOps) input() journal.SessionInput {
	in := journal.SessionInput{ID: fmt.Sprint("in_", p.fresh), Kind: agent.InputMessage, Principal: p.principal()}
	in.Body = json.RawMessage(`{"x":1}`)
	if p.coin() {
		in.Key, in.Digest = fmt.Sprint("k", p.rand.IntN(2)), fmt.Sprint(p.fresh)
	}
	return in
}

func (p *randomOps) turn(key journal.Lease, id string) (string, []answer) {
	turn := journal.SessionTurn{Session: id, Version: 1, Rounds: 3, Queued: p.coin(), Input: p.input()}
	lease := key
	body := loop.Accepted{
		Org: key.Org, RunID: key.RunID, Principal: p.principal(), Surface: agent.Surface, Policy: loop.Policy{Grade: loop.Durable},
		Queued: turn.Queued, Deferred: turn.Queued,
	}
	bodies := []loop.Body{body}
	if !turn.Queued {
		lease.Epoch, lease.Owner, bodies = 1, p.owner(), append(bodies, loop.InputAdded{ItemsRef: "x", By: loop.ByClient})
	}
	answers := p.append(key, lease, 0, journal.Batch{Opening: &journal.Opening{Turn: &turn}}, bodies...)
	if answers[0].err == nil {
		p.turns = append(p.turns, key)
	}
	return "turn", answers
}

func (p *randomOps) deliver(key journal.Lease, id string) (string, []answer) {
	batch := journal.Batch{Delivered: &journal.Delivered{Session: id, Input: p.input()}}
	return "deliver", p.append(key, key, p.ends[key], batch, loop.InputAdded{ItemsRef: "x", By: loop.ByClient})
}

func (p *randomOps) append(key, lease journal.Lease, after int64, b journal.Batch, bodies ...loop.Body) []answer {
	b.Sync = true
	for i, body := range bodies {
		b.Facts = append(b.Facts, loop.Fact{Seq: after + 1 + int64(i), Epoch: lease.Epoch, At: p.now.UnixMilli(), Version: 1, Body: body})
	}
	answers := p.only(func(s storetest.Store) error { return s.Journal.Append(p.t.Context(), lease, after, b) })
	if answers[0].err == nil {
		p.ends[key] = after + int64(len(b.Facts))
		p.unsynced[key] = false
		p.epochs[key] = max(p.epochs[key], lease.Epoch)
	}
	return answers
}
