package surface

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/settings"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Turn is what a run of an agent needs beside its snapshot.
type Turn struct {
	Agent    agent.Snapshot
	Session  string
	Message  string
	MaxSteps int               // 0 = that of the agent
	Format   model.Format      // of the answer
	Timeout  time.Duration     // 0 = that of the agent
	NoTools  bool              // one model call without tools
	Temp     *float64          // nil = that of the agent
	Servers  []settings.Server // those of the agent
	Key      *journal.SubmitKey
	Start    *journal.SessionTurn
}

// Turn returns the request for the next turn of a session. It does not start it.
func (h *Handler) Turn(r *http.Request, caller run.Caller, t Turn) (*run.Request, error) {
	targets, err := h.targets(caller, t.Agent.Model)
	if err != nil {
		return nil, err
	}
	if t.Agent.FallbackModel != "" {
		more, err := h.targets(caller, t.Agent.FallbackModel)
		if err != nil {
			return nil, err
		}
		targets = slices.Concat(targets, more)
	}
	if caller.Principal.Access.EndUsers {
		return nil, fault.New(fault.Invalid, "end_user_required", "requests with this API key must name their end user, and runs of agents have none; use another key")
	}
	hooks, err := agentHooks(t.Agent)
	if err != nil {
		return nil, err
	}
	if len(t.Servers) > 0 && !t.NoTools {
		switch {
		case !caller.Org.MCPOutbound:
			return nil, fault.New(fault.Forbidden, "mcp_not_enabled", "the agent has MCP servers, and they are not enabled for the org; ask the operator to enable the org's feature mcp_outbound")
		case !caller.Principal.Access.AllowsAddresses():
			return nil, fault.New(fault.Forbidden, "server_not_allowed", "the agent has MCP servers of its own, and this API key may use only some of the org; use another key")
		}
	}
	req := &run.Request{
		Org: caller.Org.ID, Principal: caller.Principal.ID, Surface: h.s.Name, Account: caller.Account, Model: t.Agent.Model, Targets: targets,
		Items: []item.Item{item.NewText(item.User, t.Message)}, Key: t.Key, Attach: true, Turn: t.Start,
		Continues: conversation.Ref{ID: t.Session, Named: true, Member: "session_id", Code: "not_found"},
		Store:     &run.StoreOptions{RequestJSON: []byte("{}"), For: journal.Kept},
		Options:   model.Options{Temperature: t.Agent.Settings.Temperature, Effort: t.Agent.Settings.ReasoningEffort, Format: t.Format},
		MayDecide: func(a journal.Approval) error { return a.MayDecide(caller.Org, caller.Principal) },
	}
	if t.Temp != nil {
		req.Options.Temperature = t.Temp
	}
	if t.Agent.SystemPrompt != "" {
		req.System = []item.Item{item.NewText(item.System, t.Agent.SystemPrompt)}
	}
	asked := settings.Request{Keyed: true, Live: liveDeltas(false)}
	if n := t.Agent.Settings.MaxTokens; n != nil {
		asked.MaxTokens = int64(*n)
	}
	if n := t.Agent.Settings.MaxContextTokens; n != nil {
		asked.Context, asked.CompactAt = org.ContextAuto, int64(*n)
	}
	own := settings.Agent{Rounds: t.Agent.MaxSteps, Timeout: t.Agent.Timeout, Hooks: hooks}
	if t.MaxSteps > 0 {
		own.Rounds = t.MaxSteps
	}
	if t.Timeout > 0 {
		own.Timeout = t.Timeout
	}
	if t.NoTools {
		own.Rounds = 1
	} else {
		req.AgentSession = t.Session
		asked.Servers = t.Servers
		if caller.LoopActive() {
			req.Servers = slices.DeleteFunc(slices.Clone(caller.Servers), func(s catalog.Server) bool {
				return slices.ContainsFunc(t.Servers, func(mine settings.Server) bool { return mine.Name == s.Name })
			})
		}
	}
	caller.Org = withRuntime(caller.Org, settings.OfAgent(caller.Org.Runtime, own))
	if err := h.setPolicy(r.Header, req, caller, asked); err != nil {
		return nil, err
	}
	t.Start.Rounds = req.Policy.Limits.Rounds
	req.WaitFor, req.PausedFor = 0, 0 // nobody is held: its events are followed
	return req, nil
}

// withRuntime returns the org with other settings of runs.
func withRuntime(o *org.Org, rt org.Runtime) *org.Org {
	other := *o
	other.Runtime = rt
	return &other
}

// agentHooks returns the hooks of an agent as those of an org. It refuses those that its runs cannot have yet,
// because a hook that is left out would allow what it is to deny.
func agentHooks(s agent.Snapshot) (out []org.Hook, err error) {
	for _, h := range s.Hooks {
		one := org.Hook{ID: h.ID, Event: string(h.Event), Type: h.Type(), Matcher: h.Matcher}
		switch {
		case h.Rules != nil && (h.Event == agent.PreToolUse || h.Event == agent.OnRunStart):
			for _, r := range h.Rules {
				one.Config.Rules = append(one.Config.Rules, org.HookRule(r))
			}
		case h.Approval != nil && h.Event == agent.PreToolUse:
			one.Config.Message, one.Config.Timeout = h.Approval.Message, time.Duration(h.Approval.TimeoutSeconds)*time.Second
		default:
			return nil, fault.New(fault.NotConfigured, "hook_not_available", "%s", fmt.Sprintf("the agent has the hook %s of the type %s at %s, which runs of agents do not have in this version; "+
				"remove the hook", h.ID, h.Type(), h.Event))
		}
		out = append(out, one)
	}
	return out, nil
}
