package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/journal"
)

type hookMessage struct {
	journal.HookMessage
	claimedUntil int64
}

func (m *hookMessage) waits() bool { return m.EndedAt == 0 }

func (m *hookMessage) due(now int64) bool { return m.waits() && m.claimedUntil <= now }

// addHookMessages stores messages that wait. It is called with mu held, as the other methods without a context.
func (j *Journal) addHookMessages(messages []journal.HookMessage) {
	for _, m := range messages {
		mine := func(one *hookMessage) bool { return one.Org == m.Org && one.waits() }
		n := 0
		for _, one := range j.hooks {
			if mine(one) {
				n++
			}
		}
		if j.Caps.Deliveries > 0 && n >= j.Caps.Deliveries {
			if i := slices.IndexFunc(j.hooks, func(one *hookMessage) bool { return mine(one) && one.claimedUntil == 0 }); i >= 0 {
				j.hooks[i].HookMessage = j.hooks[i].End(journal.HookGivenUp, time.UnixMilli(m.At), 0)
			}
		}
		m.Outcome, m.EndedAt, m.Micros = journal.HookWaiting, 0, 0
		j.hooks = append(j.hooks, &hookMessage{HookMessage: m})
	}
}

// dropHookMessages deletes the messages that match.
func (j *Journal) dropHookMessages(match func(*hookMessage) bool) {
	j.hooks = slices.DeleteFunc(j.hooks, match)
}

// dropHooksOf deletes the messages of an org.
func (j *Journal) dropHooksOf(orgID string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.dropHookMessages(func(m *hookMessage) bool { return m.Org == orgID })
}

// whole returns the message with what is stored of its run.
func (j *Journal) whole(m *hookMessage) journal.HookMessage {
	out := m.HookMessage
	if r := j.runs[runKey{m.Org, m.RunID}]; r != nil {
		out.Principal, out.Model, out.Surface = r.head.Summary.Principal, r.head.Summary.Model, r.head.Summary.Surface
	}
	return out
}

// DueHooks implements journal.HookMessages.
func (j *Journal) DueHooks(_ context.Context, now time.Time) (due []journal.HookKey, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, m := range j.hooks {
		if k := (journal.HookKey{Org: m.Org, Hook: m.Hook}); m.due(now.UnixMilli()) && !slices.Contains(due, k) {
			due = append(due, k)
		}
	}
	slices.SortFunc(due, func(a, b journal.HookKey) int { return cmp.Or(cmp.Compare(a.Org, b.Org), cmp.Compare(a.Hook, b.Hook)) })
	return due, nil
}

// ClaimHookMessages implements journal.HookMessages.
func (j *Journal) ClaimHookMessages(_ context.Context, now, until time.Time, asks []journal.HookAsk) (claimed []journal.HookMessage, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, ask := range asks {
		n := 0
		for _, m := range j.hooks {
			if m.Org == ask.Org && m.Hook == ask.Hook && m.due(now.UnixMilli()) && n < ask.Max {
				n++
				m.claimedUntil = until.UnixMilli()
				claimed = append(claimed, j.whole(m))
			}
		}
	}
	return claimed, nil
}

// SettleHookMessage implements journal.HookMessages.
func (j *Journal) SettleHookMessage(_ context.Context, m journal.HookMessage, entries ...audit.Entry) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := slices.IndexFunc(j.hooks, func(one *hookMessage) bool { return one.Org == m.Org && one.ID == m.ID && one.waits() })
	if i < 0 {
		return false, nil
	}
	if j.NoAudit {
		entries = nil
	}
	rows, err := j.audit.nextRows(m.Org, entries)
	if err != nil {
		return false, err
	}
	j.audit.add(rows)
	one := j.hooks[i]
	one.Outcome, one.EndedAt, one.Micros, one.claimedUntil = m.Outcome, m.EndedAt, m.Micros, 0
	return true, nil
}

// DropHookMessage implements journal.HookMessages.
func (j *Journal) DropHookMessage(_ context.Context, orgID, id string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.dropHookMessages(func(m *hookMessage) bool { return m.Org == orgID && m.ID == id && m.waits() })
	return nil
}

// HookMessages implements journal.HookMessages.
func (j *Journal) HookMessages(_ context.Context, orgID, runID string) (out []journal.HookMessage, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, m := range j.hooks {
		if m.Org == orgID && m.RunID == runID {
			out = append(out, j.whole(m))
		}
	}
	return out, nil
}
