package agents

import (
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// Observability shows what agents did: readers see the org, and members what they own. Each request looks at
// the latest [agent.ObservedTurns] runs at most.

// observed shows what agents did.
type observed struct {
	base
	store agent.Observed
}

// observedRun is a run in a list.
type observedRun struct {
	RunID       string          `json:"run_id"`
	SessionID   string          `json:"session_id"`
	AgentID     string          `json:"agent_id"`
	Version     int             `json:"agent_version"`
	Principal   string          `json:"principal"`
	Status      agent.RunStatus `json:"status"`
	StopReason  *string         `json:"stop_reason"`
	Model       string          `json:"model"`
	Steps       int             `json:"steps"`
	ToolCalls   int             `json:"tool_calls"`
	Tokens      int64           `json:"total_tokens"`
	CreatedAt   *string         `json:"created_at"`
	CompletedAt *string         `json:"completed_at"`
	Told        *string         `json:"on_run_complete"`
}

// observedCall is a tool call in a list.
type observedCall struct {
	RunID      string  `json:"run_id"`
	SessionID  string  `json:"session_id"`
	AgentID    string  `json:"agent_id"`
	Step       int     `json:"step"`
	Tool       string  `json:"tool_name"`
	Server     string  `json:"server"`
	Status     string  `json:"status"`
	Attempts   int     `json:"attempts"`
	DurationMS float64 `json:"duration_ms"`
	CreatedAt  *string `json:"created_at"`
}

// observedFilters are the filters of the lists.
var observedFilters = []string{"agent_id", "session_id", "status", "created_after", "created_before"}

// runQuery reads the filters of a list, of which known are those that it has beside the common ones.
func runQuery(r *http.Request, caller caller.Caller, known ...string) (q agent.RunQuery, page surface.OffsetPage, err error) {
	if page, err = surface.ReadOffsetPage(r, append(known, observedFilters...)...); err != nil {
		return q, page, err
	}
	q.Limit, q.Offset = page.Limit, page.Offset
	values := r.URL.Query()
	q.Agent, q.Session, q.Tool = values.Get("agent_id"), values.Get("session_id"), values.Get("tool_name")
	if !caller.Principal.Role.MayRead() {
		q.Principal = caller.Principal.ID
	}
	if text := values.Get("status"); text != "" {
		if !slices.Contains(agent.RunStatuses(), agent.RunStatus(text)) {
			return q, page, surface.InvalidValue("status", "status must be one of %v", agent.RunStatuses())
		}
		q.States = agent.StatesOf(agent.RunStatus(text))
	}
	if q.CreatedAfter, err = surface.QueryTime(values, "created_after"); err != nil {
		return q, page, err
	}
	q.CreatedBefore, err = surface.QueryTime(values, "created_before")
	return q, page, err
}

// ObservedRuns answers GET /api/observability/agent-runs, the latest first.
func (h *observed) ObservedRuns() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		q, page, err := runQuery(r, caller)
		if err != nil {
			return 0, nil, err
		}
		found, total, err := h.store.ObservedRuns(r.Context(), caller.Org.ID, q)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, page.Of("agent_runs", surface.Each(found, wireObserved), total), nil
	})
}

func wireObserved(o agent.ObservedRun) observedRun {
	return observedRun{
		RunID: o.RunID, SessionID: o.Session, AgentID: o.Agent, Version: o.Version, Principal: o.Principal, Status: agent.StatusOf(o.State),
		StopReason: surface.Given(agent.Session{State: o.State}.StopReason()), Model: o.Model, Steps: o.Rounds, ToolCalls: o.Calls,
		Tokens: o.Tokens, CreatedAt: millis.Time(o.CreatedAt), CompletedAt: millis.Time(o.FinishedAt), Told: surface.Given(o.Told),
	}
}

// ObservedCalls answers GET /api/observability/tool-calls, the latest first.
func (h *observed) ObservedCalls() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		q, page, err := runQuery(r, caller, "tool_name")
		if err != nil {
			return 0, nil, err
		}
		found, total, err := h.store.ObservedCalls(r.Context(), caller.Org.ID, q)
		if err != nil {
			return 0, nil, err
		}
		out := []observedCall{}
		for _, o := range found {
			var c audit.ToolCall
			if err := json.Unmarshal(o.Body, &c); err != nil {
				return 0, nil, err
			}
			out = append(out, observedCall{o.RunID, o.Session, o.Agent, c.Round + 1, c.Tool, c.Server, c.Status, c.Attempts, c.LatencyMS, millis.Time(o.At)})
		}
		return http.StatusOK, page.Of("tool_calls", out, total), nil
	})
}

// ObservedOrchestrations answers GET /api/observability/orchestration-runs: there are none.
func (h *observed) ObservedOrchestrations() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		_, page, err := runQuery(r, caller)
		return http.StatusOK, page.Of("orchestration_runs", []struct{}{}, 0), err
	})
}

// FilterOptions answers GET /api/observability/filter-options: the values that the filters of the lists can have.
func (h *observed) FilterOptions() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		if err := surface.CheckQuery(r.URL.Query()); err != nil {
			return 0, nil, err
		}
		q := agent.RunQuery{Limit: surface.MaxLimit}
		if !caller.Principal.Role.MayRead() {
			q.Principal = caller.Principal.ID
		}
		ids, tools, err := h.store.ObservedNames(r.Context(), caller.Org.ID, q)
		if err != nil {
			return 0, nil, err
		}
		type named struct {
			ID string `json:"id"`
		}
		agents := []named{}
		for _, id := range ids {
			agents = append(agents, named{id})
		}
		return http.StatusOK, struct {
			Agents   []named           `json:"agents"`
			Statuses []agent.RunStatus `json:"statuses"`
			Tools    []string          `json:"tool_names"`
		}{agents, agent.RunStatuses(), append([]string{}, tools...)}, nil
	})
}

// observedFor is the time that the health of runs is about.
const observedFor = 24 * time.Hour

// ObservedHealth answers GET /api/observability/health: what became of the runs of the last 24 hours.
func (h *observed) ObservedHealth() surface.Endpoint {
	return h.endpoint(func(r *http.Request, caller caller.Caller) (int, any, error) {
		if err := surface.CheckQuery(r.URL.Query()); err != nil {
			return 0, nil, err
		}
		q := agent.RunQuery{CreatedAfter: h.now().Add(-observedFor)}
		if !caller.Principal.Role.MayRead() {
			q.Principal = caller.Principal.ID
		}
		states, err := h.store.ObservedStates(r.Context(), caller.Org.ID, q)
		if err != nil {
			return 0, nil, err
		}
		runs := map[agent.RunStatus]int{}
		for _, s := range agent.RunStatuses() {
			runs[s] = 0
		}
		for state, n := range states {
			runs[agent.StatusOf(state)] += n
		}
		return http.StatusOK, struct {
			Status string                  `json:"status"`
			Since  *string                 `json:"since"`
			Runs   map[agent.RunStatus]int `json:"agent_runs"`
		}{"ok", millis.Time(q.CreatedAfter), runs}, nil
	})
}
