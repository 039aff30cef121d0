// Package settings resolves the settings of a run: those of the operator, the org, the
// surface and the request, or those of a Go program, become one [loop.Policy], which is sealed
// in the run's first fact. Everything else reads the policy, after a restart too.
package settings

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/model"
)

// Defaults are the settings of a surface for what an org leaves open.
type Defaults struct {
	Rounds         int              // rounds of a run; 0 = budget.DefaultRounds
	Calls          int              // tool calls of a run; 0 = budget.DefaultCalls
	OnLimit        string           // budget.Stop or budget.Answer; "" = budget.Stop. It also holds for light runs of an org with budget.Pause
	Parallelism    loop.Parallelism // of tool_parallelism: auto
	DoomLoop       policy.Mode      // "" = policy.Off
	ResultMaxBytes int              // maximum size of a tool result for the model; 0 = no limit
	ResultMaxChars int              // the same in characters, of which the first are kept
	KeepBack       int              // how much of the run's tokens and money is kept for an answer without tools, in percent, where OnLimit is budget.Answer
	WaitFor        bool             // a request stays open while its run waits for approvals; otherwise it ends there
	EndCut         bool             // an answer that the output limit has cut off ends the run, without its tool calls
	Continuations  int              // how often the rest of such an answer is asked for; 0 = never
}

// MaxRounds is the most rounds that a surface can give a run, within the operator's cap.
const MaxRounds = budget.MaxRounds

// Request is what one request asks of its run.
type Request struct {
	Relay     bool              // the loop is off for it
	Keyed     bool              // it has an Idempotency-Key
	Queued    bool              // it is queued, and nobody has to stay connected
	NoTools   bool              // tool_choice: none
	NoStore   bool              // nothing of it is to be stored
	Native    string            // the dialect of an answer that has items which no other can express; "" = it has none
	Hosted    []loop.HostedTool // the tools of MCP servers that answer its hosted tools
	MaxTokens int64             // limit on the output of one model call; 0 = none
	Calls     int               // limit on the tool calls of the run, which can only lower that of the org; 0 = none
	Live      []model.DeltaKind // what its answer can stream as it arrives; nil = it asks for no stream

	Switches *Switches // what it says of the agentic runtime, which the API has; nil = the API has none

	Context   string // what the request says of prompts that are too long: one of the values of org.Runtime.Context; "" = nothing
	CompactAt int64  // size of a prompt, in tokens, above which the request wants it shortened; 0 = as the model's window says

	Key        string     // id of the key
	KeyContext string     // of the key, in place of the org's; "" = that of the org
	KeyAccess  org.Access // of the key: its budgets and those of its makers, beside those of the org, and whose hooks it has
	EndUser    string     // whom the request names as its end user; "" = nobody
	MaxCost    int64      // limit on the cost of the run in 10⁻⁹ US dollars, which can only lower that of the org; 0 = none

	Servers        []Server        // the MCP servers of the org
	RequestServers []RequestServer // those of the request
}

// Server is what an MCP server of the org says of approvals.
type Server struct {
	Name            string
	Approval        policy.Approval // which calls wait
	ApprovalTimeout time.Duration   // how long; 0 = org.DefaultApprovalTimeout
	Trust           bool            // the server's annotations are believed
	MaxUses         map[string]int  // how often a run may call tools of these names; a tool that is not there: as often as it likes
}

// RequestServer is what a request says of approvals for an MCP server that it declares.
type RequestServer struct {
	Name     string // in the run, see [loop.RequestServer]
	ByURL    bool   // the request gives its URL; otherwise it names a server of the org
	Approval policy.Approval
}

// Operator is what the operator says of runs.
type Operator struct {
	MaxRoundsCap int // 0 = not set, see limitRounds and budget.DefaultRoundsCap
	Compaction   Compaction
}

// Compaction is what the operator says of prompts that are too long.
type Compaction struct {
	Model        string   // that writes summaries; "" = see loop.ContextPolicy
	ExcludeTools []string // whose results always stay
}

// Resolve returns the settings of a run of the gateway. It is the only place where they are
// decided: a request decides before its org where it does not only lower a limit, the org before the defaults of the surface,
// and nothing exceeds the operator's MaxRoundsCap. A relay has only the settings that
// concern one model call and the form of the answer.
func Resolve(op Operator, rt org.Runtime, d Defaults, r Request) loop.Policy {
	p := loop.Policy{
		Grade: loop.Relay, MaxTokens: r.MaxTokens, NoTools: r.NoTools,
		StreamMode: string(org.Live), RefuseDropped: rt.DroppedParams == "refuse", ItemEnds: true,
		Budgets: budgets(rt, r),
	}
	if !r.Relay {
		setLoop(&p, op, rt, d, r)
		p.NoStore, p.Native, p.Hosted = r.NoStore, r.Native, r.Hosted
	}
	if most := leastLimit(rt.MaxRunCost, r.MaxCost); most > 0 {
		p.Limits.NanoUSD = &most
	}
	p.NoUnpriced = rt.UnpricedTools == org.RefuseTools && p.LimitsMoney()
	if p.StreamMode == string(org.Live) && !p.HoldsAnswers() {
		p.Live = r.Live
	}
	return p.WithDefaults()
}

// setLoop sets what only a run with the agent loop has.
func setLoop(p *loop.Policy, op Operator, rt org.Runtime, d Defaults, r Request) {
	p.Grade = loop.Light
	if r.Keyed || r.Queued || rt.Durable == "always" {
		p.Grade = loop.Durable
	}
	p.StreamMode = string(cmp.Or(rt.StreamMode, org.Live))
	onLimit := cmp.Or(rt.OnLimit, d.OnLimit)
	if onLimit == budget.Pause && p.Grade != loop.Durable { // which ends with its caller
		onLimit = d.OnLimit
	}
	p.Limits = budget.Limits{
		Rounds: given(rt.MaxRounds, d.Rounds), Calls: given(rt.MaxCalls, d.Calls), ActiveMS: rt.Deadline.Milliseconds(),
		OnLimit: onLimit, Tokens: int64(given(rt.MaxRunTokens, 0)), KeepBack: d.KeepBack,
	}
	p.Limits = p.Limits.Clamp(cmp.Or(op.MaxRoundsCap, budget.DefaultRoundsCap))
	if r.Switches != nil {
		r.Switches.limitRounds(&p.Limits, rt, op.MaxRoundsCap)
		p.Switched = r.Switches.Offered(rt)
	}
	if r.Calls > 0 {
		p.Limits.Calls = min(p.Limits.Calls, r.Calls)
	}
	p.EndCut, p.Continuations = d.EndCut, d.Continuations
	p.Parallelism = loop.Parallelism(rt.ToolParallelism)
	if rt.ToolParallelism == "" || rt.ToolParallelism == "auto" {
		p.Parallelism = d.Parallelism
	}
	p.AbortOnTool = rt.ToolErrorMode == "abort"
	p.Guard = policy.Guard{Mode: cmp.Or(policy.Mode(rt.DoomLoop), d.DoomLoop), Threshold: rt.DoomThreshold, Failures: rt.DoomFailures}
	p.Validation = cmp.Or(loop.Validation(rt.ToolArgValidation), loop.Strict)
	if p.ResultMaxBytes = given(rt.ToolResultMaxBytes, d.ResultMaxBytes); rt.ToolResultMaxBytes == nil {
		p.ResultMaxChars = d.ResultMaxChars
	}
	p.CatalogTTLNS, p.CacheTTLNS = rt.CatalogTTL.Nanoseconds(), rt.ToolCacheTTL.Nanoseconds()
	p.Context = contextPolicy(op.Compaction, rt, r)
	p.Slots = rt.Concurrency
	most := maxWait(r, rt, d)
	p.Hooks = Hooks(rt, r.Key, r.KeyAccess.Makers, most)
	p.Approvals, p.MaxUses = approvals(r, most), maxUses(r)
	setPermission(p, rt, r, most)
	p.ToolWaitMS = waitWithin(most).Milliseconds()
	if p.Pauses() {
		p.PauseMS = p.ToolWaitMS
	}
}

// contextPolicy returns how prompts are kept within the window of their model: as the request says, or
// else the key, or else the org.
func contextPolicy(op Compaction, rt org.Runtime, r Request) loop.ContextPolicy {
	p := loop.ContextPolicy{Threshold: r.CompactAt, SummaryModel: cmp.Or(rt.CompactionModel, op.Model)}
	switch cmp.Or(r.Context, r.KeyContext, rt.Context) {
	case org.ContextAuto:
		p.Mode = loop.ContextAuto
	case org.ContextPrune:
		p.Mode, p.SummaryModel = loop.ContextPrune, "" // nothing is summarised
	default:
		return loop.ContextPolicy{}
	}
	p.ExcludeTools = slices.Concat(op.ExcludeTools, rt.CompactionExclude)
	return p
}

// budgets returns the budgets of several runs that the run spends from: those of the org first, then
// of its key, then of its end user. Of two budgets for the same calls and the same period both
// limits hold.
func budgets(rt org.Runtime, r Request) (all []budget.Shared) {
	add := func(kind, id string, b org.Budget) {
		one := budget.Shared{Scope: budget.ScopeOf(kind, id), Period: budget.Period(b.Period), Limit: budget.Amount{Tokens: b.Tokens, NanoUSD: b.NanoUSD}}
		for i, known := range all {
			if known.Scope == one.Scope && known.Period == one.Period {
				all[i].Limit = budget.Amount{
					Tokens:  leastLimit(known.Limit.Tokens, one.Limit.Tokens),
					NanoUSD: leastLimit(known.Limit.NanoUSD, one.Limit.NanoUSD),
				}
				return
			}
		}
		all = append(all, one)
	}
	for _, scope := range []string{budget.ScopeOrg, budget.ScopeKey, budget.ScopeEndUser} {
		id := map[string]string{budget.ScopeKey: r.Key, budget.ScopeEndUser: r.EndUser}[scope]
		if scope != budget.ScopeOrg && id == "" {
			continue
		}
		for _, b := range rt.Budgets {
			if b.Scope == scope {
				add(scope, id, b)
			}
		}
		if scope == budget.ScopeKey {
			for _, b := range r.KeyAccess.Budgets {
				add(scope, id, b)
			}
			for _, m := range r.KeyAccess.Makers {
				for _, b := range m.Budgets {
					add(scope, m.Key, b)
				}
			}
		}
	}
	return all
}

// leastLimit returns the lower of two limits of which 0 is none.
func leastLimit(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// SessionTTL returns how long a session of a key is kept that is not used.
func SessionTTL(rt org.Runtime) time.Duration {
	return cmp.Or(rt.SessionTTL, org.DefaultSessionTTL)
}

// ApprovalHold returns how long a request stays open while its run waits for approvals.
func ApprovalHold(rt org.Runtime) time.Duration {
	return cmp.Or(rt.ApprovalHold, org.DefaultApprovalHold)
}

// MaxQueued returns how many runs of an org may be queued.
func MaxQueued(rt org.Runtime) int { return cmp.Or(rt.MaxQueued, org.DefaultMaxQueued) }

// NoStoreWait is how long the approvals of a run that is to be forgotten may wait at most: while
// it waits, its texts are stored.
const NoStoreWait = 24 * time.Hour

// Ceilings returns how far the limits of a run may be raised, by what its org allows now: to what a new
// run would get. An org that leaves a limit to the surfaces allows what the configuration allows.
func Ceilings(maxRoundsCap int, rt org.Runtime) budget.Limits {
	maxRoundsCap = cmp.Or(maxRoundsCap, budget.DefaultRoundsCap)
	c := budget.Limits{
		Rounds: given(rt.MaxRounds, maxRoundsCap), Calls: given(rt.MaxCalls, budget.MaxCalls), Tokens: int64(given(rt.MaxRunTokens, 0)),
		ActiveMS: cmp.Or(rt.Deadline, org.MaxDeadline).Milliseconds(),
	}
	c.Rounds = min(c.Rounds, maxRoundsCap)
	if rt.MaxRunCost > 0 {
		c.NanoUSD = &rt.MaxRunCost
	}
	return c
}

// Budgets returns the budgets of several runs that a run of the key and the end user spends from now.
func Budgets(rt org.Runtime, key string, access org.Access, endUser string) []budget.Shared {
	return budgets(rt, Request{Key: key, KeyAccess: access, EndUser: endUser})
}

// maxWait returns how long the approvals and the pauses of a run may wait at most; 0 = as long as its servers
// say. Without a key, nobody can come back for the answer to a request that was held open.
func maxWait(r Request, rt org.Runtime, d Defaults) time.Duration {
	var most time.Duration
	if r.NoStore {
		most = NoStoreWait
	}
	if d.WaitFor && !r.Keyed {
		hold := ApprovalHold(rt)
		most = min(cmp.Or(most, hold), hold)
	}
	return most
}

// waitWithin returns how long something waits for a person that has no time of its own: at most so long; 0 = the default.
func waitWithin(most time.Duration) time.Duration {
	return min(org.DefaultApprovalTimeout, cmp.Or(most, org.DefaultApprovalTimeout))
}

// maxUses returns the limits on the calls of single tools: those of the org, and those of the request.
func maxUses(r Request) (out []loop.ToolUses) {
	for _, s := range r.Servers {
		for _, name := range slices.Sorted(maps.Keys(s.MaxUses)) {
			out = append(out, loop.ToolUses{Server: s.Name, Tool: name, Most: s.MaxUses[name]})
		}
	}
	for _, h := range r.Hosted {
		if h.MaxUses > 0 {
			out = append(out, loop.ToolUses{Server: h.Server, Tool: h.Tool, Most: h.MaxUses})
		}
	}
	return out
}

// approvals returns the rules of the servers that have calls which wait for approval. A request
// that declares a server by its URL believes the annotations for which its own rule asks.
func approvals(r Request, most time.Duration) (out []loop.ServerApproval) {
	add := func(one loop.ServerApproval, wait time.Duration) {
		wait = cmp.Or(wait, org.DefaultApprovalTimeout)
		if most > 0 {
			wait = min(wait, most)
		}
		one.WaitMS = wait.Milliseconds()
		if !one.ByServer.AsksNever() || !one.ByRequest.AsksNever() {
			out = append(out, one)
		}
	}
	for _, s := range r.Servers {
		one := loop.ServerApproval{Server: s.Name, ByServer: s.Approval, Trust: s.Trust}
		for _, d := range r.RequestServers {
			if d.Name == s.Name && !d.ByURL {
				one.ByRequest = d.Approval
			}
		}
		add(one, s.ApprovalTimeout)
	}
	for _, d := range r.RequestServers {
		if d.ByURL {
			add(loop.ServerApproval{Server: d.Name, ByRequest: d.Approval, Trust: true}, 0)
		}
	}
	return out
}

// given returns the value of a setting, or otherwise if it is not set. A stored value that
// is not positive counts as not set.
func given(v *int, otherwise int) int {
	if v == nil || *v <= 0 {
		return otherwise
	}
	return *v
}
