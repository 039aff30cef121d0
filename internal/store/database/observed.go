package database

import (
	"context"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/audit"
)

// observed returns the part of a statement from FROM on that selects runs of agents, the newest turns of the org.
func observed(orgID string, q agent.RunQuery) (string, []any) {
	args := []any{orgID, q.CreatedAfter.IsZero(), millis(q.CreatedAfter), q.CreatedBefore.IsZero(), millis(q.CreatedBefore), agent.ObservedTurns}
	text := ` FROM (SELECT * FROM session_turns WHERE org = ? AND (? = 1 OR created_at > ?) AND (? = 1 OR created_at < ?) ORDER BY run_id DESC LIMIT ?) t
		JOIN sessions s ON s.org = t.org AND s.id = t.session LEFT JOIN runs r ON r.org = t.org AND r.run_id = t.run_id WHERE true`
	for column, value := range map[string]string{"s.agent": q.Agent, "t.session": q.Session, "s.principal": q.Principal} {
		if value != "" {
			text, args = text+` AND `+column+` = ?`, append(args, value)
		}
	}
	if len(q.States) > 0 {
		text += ` AND ` + observedState + ` IN (?` + strings.Repeat(`, ?`, len(q.States)-1) + `)`
		for _, state := range q.States {
			args = append(args, state)
		}
	}
	return text, args
}

const observedState = `coalesce(CASE r.finish_reason WHEN '' THEN r.status ELSE r.finish_reason END, '')`

// ObservedRuns implements agent.Observed.
func (r *Reader) ObservedRuns(ctx context.Context, orgID string, q agent.RunQuery) ([]agent.ObservedRun, int, error) {
	from, args := observed(orgID, q)
	var total int
	if err := r.db.QueryRowContext(ctx, `SELECT count(*)`+from, args...).Scan(&total); err != nil {
		return nil, 0, r.wrap("count runs of agents", err)
	}
	found, err := list(ctx, r.db, func(row scanner) (o agent.ObservedRun, err error) {
		err = row.Scan(&o.RunID, &o.Session, &o.Agent, &o.Principal, &o.Version, &o.State, &o.Model, &o.Rounds, &o.Calls, &o.Tokens,
			asTime{&o.CreatedAt}, asTime{&o.FinishedAt}, &o.Told)
		return o, err
	}, `SELECT t.run_id, t.session, s.agent, s.principal, t.version, `+observedState+`, coalesce(r.model, ''), coalesce(r.rounds, 0), coalesce(r.calls, 0),
		coalesce(r.tokens, 0), t.created_at, coalesce(r.finished_at, 0), (SELECT CASE WHEN count(*) = 0 THEN '' WHEN min(m.ended_at) = 0 THEN 'waiting'
			WHEN max(CASE m.outcome WHEN 'succeeded' THEN 0 ELSE 1 END) = 1 THEN 'failed' ELSE 'succeeded' END FROM hook_messages m WHERE m.org = t.org AND m.run_id = t.run_id)`+from+` ORDER BY t.run_id DESC LIMIT ? OFFSET ?`, append(args, q.Limit, q.Offset)...)
	return found, total, r.wrap("list runs of agents", err)
}

// observedCalls returns a statement for the calls of runs, of which there are at most [agent.ObservedTurns].
// The rows of a run have its id as their request id, or that, a dot and a number.
func observedCalls(orgID string, q agent.RunQuery) (string, []any) {
	from, args := observed(orgID, q)
	text := `SELECT t.run_id, t.session, s.agent, a.at, a.body, a.n` + strings.Replace(from, ` WHERE true`,
		` CROSS JOIN audit_log a ON a.org = t.org AND a.request_id >= t.run_id AND a.request_id < t.run_id || '/' WHERE a.kind = ?`, 1)
	at := 6 // of the argument after those of the turns
	args = append(args[:at:at], append([]any{string(audit.KindToolCall)}, args[at:]...)...)
	if q.Tool != "" {
		text, args = text+` AND json_extract(a.body, '$.tool') = ?`, append(args, q.Tool)
	}
	return text + ` ORDER BY t.run_id DESC, a.n DESC LIMIT ?`, append(args, agent.ObservedTurns)
}

// ObservedCalls implements agent.Observed.
func (r *Reader) ObservedCalls(ctx context.Context, orgID string, q agent.RunQuery) ([]agent.ObservedCall, int, error) {
	all, args := observedCalls(orgID, q)
	var total int
	if err := r.db.QueryRowContext(ctx, `SELECT count(*) FROM (`+all+`) AS calls`, args...).Scan(&total); err != nil {
		return nil, 0, r.wrap("count calls of agents", err)
	}
	found, err := list(ctx, r.db, func(row scanner) (o agent.ObservedCall, err error) {
		err = row.Scan(&o.RunID, &o.Session, &o.Agent, asTime{&o.At}, &o.Body)
		return o, err
	}, `SELECT run_id, session, agent, at, body FROM (`+all+`) AS calls LIMIT ? OFFSET ?`, append(args, q.Limit, q.Offset)...)
	return found, total, r.wrap("list calls of agents", err)
}

// ObservedNames implements agent.Observed.
func (r *Reader) ObservedNames(ctx context.Context, orgID string, q agent.RunQuery) (agents, tools []string, err error) {
	name := func(row scanner) (text string, err error) {
		err = row.Scan(&text)
		return text, err
	}
	from, args := observed(orgID, q)
	agents, err = list(ctx, r.db, name, `SELECT DISTINCT s.agent`+from+` ORDER BY s.agent LIMIT ?`, append(args, q.Limit)...)
	if err != nil {
		return nil, nil, r.wrap("list agents with runs", err)
	}
	all, args := observedCalls(orgID, q)
	tools, err = list(ctx, r.db, name, `SELECT DISTINCT tool FROM (SELECT json_extract(body, '$.tool') AS tool FROM (`+all+`) AS calls) AS named
		WHERE tool IS NOT NULL ORDER BY tool LIMIT ?`, append(args, q.Limit)...)
	return agents, tools, r.wrap("list tools of runs", err)
}

// ObservedStates implements agent.Observed.
func (r *Reader) ObservedStates(ctx context.Context, orgID string, q agent.RunQuery) (map[string]int, error) {
	from, args := observed(orgID, q)
	type counted struct {
		state string
		n     int
	}
	found, err := list(ctx, r.db, func(row scanner) (c counted, err error) {
		err = row.Scan(&c.state, &c.n)
		return c, err
	}, `SELECT `+observedState+` AS state, count(*)`+from+` GROUP BY state`, args...)
	out := map[string]int{}
	for _, c := range found {
		out[c.state] = c.n
	}
	return out, r.wrap("count states of runs", err)
}
