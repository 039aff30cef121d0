package surface

import (
	"net/http"
	"slices"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/caller"
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
	EndUser  string            // whom the request names; "" = nobody
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
func (h *Handler) Turn(r *http.Request, caller caller.Caller, t Turn) (*run.Request, error) {
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
	if caller.Principal.Access.EndUsers && t.EndUser == "" {
		return nil, noEndUser()
	}
	hooks := agentHooks(caller.Org.Runtime, t.Agent)
	if len(t.Servers) > 0 && !t.NoTools {
		switch {
		case !caller.Org.MCPOutbound && slices.ContainsFunc(t.Servers, func(s settings.Server) bool { return s.Name != agent.ToolServer }):
			return nil, fault.New(fault.Forbidden, "mcp_not_enabled", "the agent has MCP servers, and they are not enabled for the org; ask the operator to enable the org's feature mcp_outbound")
		case !caller.Principal.Access.AllowsAddresses():
			return nil, fault.New(fault.Forbidden, "server_not_allowed", "the agent has MCP servers or tools of its own, and this API key may use only some of the org; use another key")
		}
	}
	req := &run.Request{
		Who: run.Who{
			Org: caller.Org.ID, Principal: caller.Principal.ID, Surface: h.s.Name, Account: caller.Account, EndUser: t.EndUser, Agent: t.Agent.Agent,
		},
		Input: run.Input{
			Conversation: run.Conversation{
				Items:   []item.Item{item.NewText(item.User, t.Message)},
				Options: model.Options{Temperature: t.Agent.Settings.Temperature, Effort: t.Agent.Settings.ReasoningEffort, Format: t.Format},
			},
			Model: t.Agent.Model, Targets: targets,
			Continues: conversation.Ref{ID: t.Session, Named: true, Member: "session_id", Code: "not_found"},
		},
		Reply: run.Reply{Key: t.Key, Attach: true, Store: &run.StoreOptions{RequestJSON: []byte("{}"), Owner: t.Session, For: journal.Kept}},
		Turn:  t.Start,
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
		asked.CompactAt = int64(*n)
	}
	own := settings.Agent{Rounds: t.Agent.MaxSteps, Timeout: t.Agent.Timeout, Hooks: slices.Concat(toolRules(t.Agent), hooks), Summary: t.Agent.CompactionModel}
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

// Serves reports whether a provider serves the model with a name, or each one of a list of names.
func (h *Handler) Serves(name string) bool { return h.o.Router.Serves(name) }

// withRuntime returns the org with other settings of runs.
func withRuntime(o *org.Org, rt org.Runtime) *org.Org {
	other := *o
	other.Runtime = rt
	return &other
}

// agentHooks returns the hooks of an agent as those of an org. What an http hook is sent to is looked up when
// it runs. No run delegates, so that hooks at OnDelegation never run.
func agentHooks(rt org.Runtime, s agent.Snapshot) (out []org.Hook) {
	for _, h := range s.Hooks {
		one := org.Hook{ID: h.ID, Agent: true, Event: string(h.Event), Type: h.Type(), Matcher: h.Matcher, Position: h.Position}
		if _, taken := rt.Hook(h.ID); taken {
			one.ID = agent.OwnHook + h.ID
		}
		switch {
		case h.Event == agent.OnDelegation:
			continue
		case h.Rules != nil:
			for _, r := range h.Rules {
				one.Config.Rules = append(one.Config.Rules, org.HookRule(r))
			}
		case h.Approval != nil:
			one.Config.Message, one.Config.Timeout = h.Approval.Message, time.Duration(h.Approval.TimeoutSeconds)*time.Second
		case h.HTTP != nil:
			one.Config.OnError = h.HTTP.OnError
		}
		out = append(out, one)
	}
	return out
}

// toolRules returns the rules of the tools of an agent as hooks, which run before its own.
func toolRules(s agent.Snapshot) (out []org.Hook) {
	add := func(assignment, name string, rules []agent.HookRule) {
		if len(rules) == 0 {
			return
		}
		one := org.Hook{ID: assignment, Event: string(agent.PreToolUse), Type: "rule", Matcher: name, Offered: true}
		for _, r := range rules {
			one.Config.Rules = append(one.Config.Rules, org.HookRule(r))
		}
		out = append(out, one)
	}
	for _, t := range s.Builtins {
		add(t.Assignment, t.Name, t.Rules)
	}
	for _, t := range s.Tools {
		add(t.Assignment, t.Tool.Name, t.Rules)
	}
	return out
}
