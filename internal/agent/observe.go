package agent

import (
	"context"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/journal"
)

// ObservedTurns is how many turns of sessions a query about runs looks at: the latest of an org in its times.
const ObservedTurns = 10_000

// RunStatus is what became of a run of an agent.
type RunStatus string

// The statuses of runs. The API has them.
const (
	RunRunning   RunStatus = "running"
	RunWaiting   RunStatus = "waiting"
	RunCompleted RunStatus = "completed"
	RunFailed    RunStatus = "failed"
	RunCancelled RunStatus = "cancelled"
	RunDeleted   RunStatus = "deleted" // retention has deleted it
)

// RunStatuses returns all statuses.
func RunStatuses() []RunStatus {
	return []RunStatus{RunRunning, RunWaiting, RunCompleted, RunFailed, RunCancelled, RunDeleted}
}

// StatusOf returns the status of a run with a state: see [journal.Summary.State]; "" = it is deleted.
func StatusOf(state string) RunStatus {
	switch journal.Status(state) {
	case "":
		return RunDeleted
	case journal.Running, journal.Queued, journal.IsAside:
		return RunRunning
	case journal.Waiting, journal.Paused:
		return RunWaiting
	case journal.Done:
	}
	switch r := event.Reason(state); {
	case slices.Contains([]event.Reason{event.Cancelled, event.CallerGone, event.Deadline}, r):
		return RunCancelled
	case slices.Contains([]event.Reason{event.NoProgress, event.Tokens, event.Money}, r) || r.Failed():
		return RunFailed
	}
	return RunCompleted
}

// StatesOf returns the states of runs that have a status.
func StatesOf(s RunStatus) (out []string) {
	all := []string{"", string(journal.Running), string(journal.Queued), string(journal.IsAside), string(journal.Waiting), string(journal.Paused)}
	for _, r := range event.Reasons() {
		all = append(all, string(r))
	}
	return slices.DeleteFunc(all, func(state string) bool { return StatusOf(state) != s })
}

// ObservedRun is a run of an agent.
type ObservedRun struct {
	RunID, Session, Agent, Principal string
	Version                          int
	State                            string // see [journal.Summary.State]; "" = the run is deleted
	Model                            string
	Rounds, Calls                    int
	Tokens                           int64
	CreatedAt, FinishedAt            time.Time // FinishedAt is zero before the end
	Told                             string    // its hooks at OnRunComplete: "waiting" if one of them waits, "failed" if not all have accepted, "succeeded"; "" = there are none
}

// ObservedCall is a tool call of such a run.
type ObservedCall struct {
	RunID, Session, Agent string
	At                    time.Time
	Body                  []byte // JSON of an [audit.ToolCall]
}

// RunQuery selects runs of agents, among the latest [ObservedTurns] of an org.
type RunQuery struct {
	Agent, Session, Principal   string // "" = any
	States                      []string
	CreatedAfter, CreatedBefore time.Time // zero = any
	Tool                        string    // the server's own name, of calls; "" = any
	Limit, Offset               int
}

// Observed reads what runs of agents did. Implemented by store/database.
type Observed interface {
	// ObservedRuns returns runs, the latest first, and how many the query selects without Limit and Offset.
	ObservedRuns(ctx context.Context, orgID string, q RunQuery) (found []ObservedRun, total int, err error)
	// ObservedCalls returns tool calls of these runs, the latest first, and how many there are: at most
	// ObservedTurns.
	ObservedCalls(ctx context.Context, orgID string, q RunQuery) (found []ObservedCall, total int, err error)
	// ObservedNames returns the ids of agents, and the tools, that the runs have: at most limit of each.
	ObservedNames(ctx context.Context, orgID string, q RunQuery) (agents, tools []string, err error)
	// ObservedStates returns how many of the runs have each state.
	ObservedStates(ctx context.Context, orgID string, q RunQuery) (map[string]int, error)
}
