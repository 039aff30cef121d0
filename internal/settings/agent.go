package settings

import (
	"cmp"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
)

// Agent is what an agent says of its runs.
type Agent struct {
	Rounds  int           // at least 1; the last one has no tools
	Timeout time.Duration // of active time; 0 = the org's deadline
	Hooks   []org.Hook    // in their order, after those of the org
	Summary string        // model that writes summaries of long sessions; "" = that of the org
}

// What runs of agents have for what their org leaves open: how many characters of a tool's result the model
// gets, how much of the run's tokens and money is kept for the answer, in percent, and how often the rest of an
// answer is asked for that the length of the output has cut off.
const (
	AgentResultMaxChars = 50_000
	AgentKeepBack       = 15
	AgentContinuations  = 3
)

// OfAgent returns what an org says of runs, for the runs of one of its agents. Of the limits of both on rounds and on
// time the lower one holds, and long prompts are made shorter unless the org says otherwise. A run whose rounds are
// used up ends with an answer.
func OfAgent(rt org.Runtime, a Agent) org.Runtime {
	rt.MaxRounds, rt.OnLimit = new(min(a.Rounds, given(rt.MaxRounds, a.Rounds))), budget.Answer
	rt.Context = cmp.Or(rt.Context, org.ContextAuto)
	if a.Timeout > 0 && (rt.Deadline == 0 || a.Timeout < rt.Deadline) {
		rt.Deadline = a.Timeout
	}
	rt.DoomLoop = string(policy.Fail)
	rt.CompactionModel = cmp.Or(a.Summary, rt.CompactionModel)
	rt.Hooks = slices.Concat(rt.Hooks, a.Hooks)
	return rt
}
