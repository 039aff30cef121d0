// Package agents is the REST API of agents below /api/agents, with /api/sessions, /api/tools and
// /api/settings. It stores what an org says of its agents, and runs them: each turn of a session is a durable
// run, whose events a projection turns into the frames of the API.
//
//	request ─► fields (400 names the member) ─► agent.Definition.Check ─► agent.Store: a new version
//
// Agents of the configuration file are shown with "declared": true and cannot be changed here. An id that
// another org has is answered as one that does not exist.
package agents

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/settings"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Secrets keeps the settings that are secret. Implemented by store/sqlite.
type Secrets interface {
	Secrets(ctx context.Context, org string) ([]org.Secret, error)
	PutSecret(ctx context.Context, s org.Secret, by org.Author) error
	DeleteSecret(ctx context.Context, org, name string, by org.Author) error
}

// Runner performs runs. Implemented by *run.Runner.
type Runner interface {
	Follow(ctx context.Context, f eventlog.Follow, sink eventlog.Sink) error
	Cancel(ctx context.Context, orgID, runID string, by org.Author) error
	Decide(ctx context.Context, orgID, id string, d journal.Decision, by org.Author) (journal.Approval, error)
	DeleteSegment(ctx context.Context, caller caller.Caller, owner, id string) (bool, error)
}

// Tools are those of MCP servers.
type Tools struct {
	// Selects reports whether selects holds for one of them, by the name that the model sees and the server's own.
	Selects func(selects func(name, own string) bool) bool

	// Unavailable names the servers that could not list theirs.
	Unavailable []string
}

// Options are what a Handler needs. All but Vault and Declared are required.
type Options struct {
	Store   agent.Store
	Secrets Secrets
	Vault   *secret.Keyring // nil = secret settings cannot be stored
	Reader  Reader

	Kit           *surface.Handler // resolves models and settings of runs
	Sessions      agent.Sessions
	Conversations journal.Conversations
	Deleted       func(orgID, session string) // is called for each session that was deleted
	Archive       journal.Archive
	HookMessages  journal.HookMessagesOfRun
	Observed      agent.Observed
	Runner        Runner
	EndOrphaned   func(ctx context.Context) error                                                    // run.EndOrphaned
	Leave         func(ctx context.Context, orgID, runID, principal string) error                    // run.Leave
	Place         func(ctx context.Context, req *run.Request, busy run.WhenBusy) (run.Placed, error) // run.Place
	DecideNext    func(ctx context.Context, n run.Next, by org.Author) (journal.Approval, error)     // run.DecideNext
	// ListServer asks an MCP server of an agent for its tools. reason says why it failed, without addresses.
	ListServer func(ctx context.Context, s org.MCPServer) (tools []tool.Tool, reason string, err error)
	// ToolsOf returns the tools of MCP servers that runs of an agent with these servers of its own get.
	ToolsOf      func(ctx context.Context, caller caller.Caller, own []org.MCPServer) (Tools, error)
	AgentServers func(orgID string, s agent.Snapshot) []settings.Server // what the MCP servers of an agent say of approvals

	// MissingFor says what an org has to set before calls of a built-in tool can succeed; "" = nothing.
	MissingFor func(ctx context.Context, orgID, tool string) string

	Declared func(orgID string) []agent.Agent // of the configuration file, in its order; nil = there are none
	Judge    func(url string) error           // refuses what the outbound policy refuses without a lookup

	// SecretChanged is called after a secret of the org has changed.
	SecretChanged func(ctx context.Context, orgID, name string) error

	NewID func(prefix string) string
	Log   *slog.Logger
	Now   func() time.Time
}

// Reader reads and shows settings of MCP servers with the rules of the configuration file. Implemented by
// directory.Reader.
type Reader interface {
	// MCPServer reads a whole server. Patched says that null gives a key its default.
	MCPServer(json []byte, patched bool) (org.MCPServer, error)
	// ServerSettings returns the settings of a server with the keys of the file.
	ServerSettings(s org.MCPServer) json.Marshaler
	// HTTPTool reads name, description, input_schema, url, method, headers and class of an HTTP tool.
	HTTPTool(json []byte) (org.HTTPTool, error)
}

// Handler answers the API.
type Handler struct{ o Options }

// New returns a Handler.
func New(o Options) *Handler { return &Handler{o} }

// errorObject is the format of the errors.
type errorObject struct {
	Error string `json:"error"`
	Code  string `json:"code"`
	Param string `json:"param,omitempty"`

	RetryAfterSecs int `json:"retry_after_secs,omitempty"`
}

// Errors returns the error format of the API.
func Errors() *surface.Errors {
	return &surface.Errors{Object: func(e surface.Error) any { return errorObject{e.Message, e.Code, e.Param, e.RetryAfter} }}
}

// Routes returns the routes of the API. The endpoints of a nil Handler must not be called.
func (h *Handler) Routes() []surface.Route {
	managers := surface.Group{Errors: Errors(), Roles: surface.Managers, MaxBody: surface.MaxManagementBody}
	users, readers := managers.By(surface.RunReaders), managers.By(surface.Readers)
	starters, runners, deciders := surface.ModelRequests(Errors()), managers.By(surface.Runners), managers.By(surface.AnyRole)
	return []surface.Route{
		users.Route("GET /api/agents", h.List()),
		managers.Route("POST /api/agents", h.Create()),
		users.Route("GET /api/agents/{id}", h.Get()),
		managers.Route("PATCH /api/agents/{id}", h.Patch()),
		managers.Route("DELETE /api/agents/{id}", h.Delete()),
		managers.Route("POST /api/agents/{id}/archive", h.Archive(true)),
		managers.Route("POST /api/agents/{id}/restore", h.Archive(false)),
		readers.Route("GET /api/agents/{id}/versions", h.Versions()),
		readers.Route("GET /api/agents/{id}/versions/{version}", h.Version()),
		readers.Route("GET /api/agents/{id}/mcp-servers", h.Servers()),
		managers.Route("POST /api/agents/{id}/mcp-servers", h.AddServer()),
		readers.Route("GET /api/agents/{id}/mcp-servers/{sid}", h.Server()),
		managers.Route("GET /api/agents/{id}/mcp-servers/{sid}/tools", h.ServerTools()),
		managers.Route("PUT /api/agents/{id}/mcp-servers/{sid}", h.ChangeServer()),
		managers.Route("DELETE /api/agents/{id}/mcp-servers/{sid}", h.RemoveServer()),
		readers.Route("GET /api/agents/{id}/hooks", h.Hooks()),
		managers.Route("POST /api/agents/{id}/hooks", h.AddHook()),
		readers.Route("GET /api/agents/{id}/hooks/{hid}", h.Hook()),
		managers.Route("DELETE /api/agents/{id}/hooks/{hid}", h.RemoveHook()),
		readers.Route("GET /api/agents/{id}/tools", h.Assignments()),
		managers.Route("POST /api/agents/{id}/tools", h.AssignTool()),
		managers.Route("PATCH /api/agents/{id}/tools/{aid}", h.ChangeAssignment()),
		managers.Route("DELETE /api/agents/{id}/tools/{aid}", h.RemoveAssignment()),
		starters.Route("POST /api/agents/{id}/run", h.Run),
		starters.Route("POST /api/agents/{id}/run/stream", h.Stream),
		users.Route("GET /api/agents/{id}/sessions", h.Sessions()),
		runners.Route("POST /api/agents/{id}/sessions", h.CreateSession()),
		runners.Route("DELETE /api/agents/{id}/sessions/{sid}", h.DeleteSession("sid")),
		apart(users).Route("GET /api/agents/runs/{id}", surface.Admitted(h.GetRun)),
		apart(users).Open().Route("GET /api/agents/runs/{id}/events", h.Events),
		apart(runners).Route("POST /api/agents/runs/{id}/cancel", h.CancelRun()),
		apart(deciders).Route("POST /api/agents/runs/{id}/approve", h.ApproveRun()),
		apart(managers).Route("/api/agents/runs/", nil), // unknown paths
		managers.Route("/api/agents/", nil),

		users.Route("GET /api/sessions/{id}", h.Session()),
		users.Route("GET /api/sessions/{id}/messages", h.Messages()),
		users.Route("GET /api/sessions/{id}/inputs", h.Inputs()),
		users.Route("GET /api/sessions/{id}/runs", h.SessionRuns()),
		runners.Route("DELETE /api/sessions/{id}", h.DeleteSession("id")),
		managers.Route("/api/sessions/", nil),

		users.Route("GET /api/tools", h.Tools()),
		managers.Route("POST /api/tools", h.CreateTool()),
		users.Route("GET /api/tools/{id}", h.Tool()),
		managers.Route("PUT /api/tools/{id}", h.ChangeTool()),
		managers.Route("DELETE /api/tools/{id}", h.RemoveTool()),
		managers.Route("/api/tools/", nil),

		readers.Route("GET /api/settings", h.Settings()),
		managers.Route("PUT /api/settings", h.PutSettings()),
		managers.Route("PUT /api/settings/{key}", h.PutSetting()),
		managers.Route("DELETE /api/settings/{key}", h.DeleteSetting()),
		managers.Route("POST /api/settings/reset-category", h.ResetCategory()),
		managers.Route("/api/settings/", nil),

		users.Route("GET /api/observability/agent-runs", h.ObservedRuns()),
		users.Route("GET /api/observability/tool-calls", h.ObservedCalls()),
		users.Route("GET /api/observability/orchestration-runs", h.ObservedOrchestrations()),
		users.Route("GET /api/observability/filter-options", h.FilterOptions()),
		users.Route("GET /api/observability/health", h.ObservedHealth()),
		managers.Route("/api/observability/", nil),
	}
}

// apart returns the group for routes of runs, whose paths are those of an agent with the id runs, too.
func apart(g surface.Group) surface.Group {
	g.Apart = "/api/agents/runs/"
	return g
}

func (h *Handler) endpoint(serve func(*http.Request, caller.Caller) (int, any, error)) surface.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		return surface.Managed(h.o.Log, serve)(w, r, caller)
	}
}

// author returns who changes something.
func (h *Handler) author(caller caller.Caller) org.Author {
	return org.Author{Principal: caller.Principal.ID, RequestID: caller.RequestID, At: h.o.Now().UnixMilli()}
}

// millis is how precisely the API writes times.
const millis = surface.Milliseconds

// The things of the API, for the errors of its stores.

func anAgent(id string) surface.Thing    { return surface.Thing{Kind: "agent", ID: id} }
func aSession(id string) surface.Thing   { return surface.Thing{Kind: "session", ID: id} }
func aRun(id string) surface.Thing       { return surface.Thing{Kind: "run of an agent", ID: id} }
func customTool(id string) surface.Thing { return surface.Thing{Kind: "custom tool", ID: id} }

func isDeclared(a agent.Agent) error {
	return fault.New(fault.Conflict, "declared", "the agent %q is declared in the configuration file and can only be changed there", a.Name)
}

// declared returns the agents of the configuration file.
func (h *Handler) declared(caller caller.Caller) []agent.Agent {
	if h.o.Declared == nil {
		return nil
	}
	return h.o.Declared(caller.Org.ID)
}

// find returns the agent that the path names.
func (h *Handler) find(r *http.Request, caller caller.Caller) (agent.Agent, error) {
	id := r.PathValue("id")
	if !strings.HasPrefix(id, agent.Prefix) {
		for _, a := range h.declared(caller) {
			if a.ID == id {
				return a, nil
			}
		}
	}
	a, err := h.o.Store.Agent(r.Context(), caller.Org.ID, id)
	return a, surface.Refused(err, anAgent(id))
}

// change applies a change to the agent that the path names, and returns its new version. If another
// request changes the agent at the same time, it is applied again.
func (h *Handler) change(r *http.Request, caller caller.Caller, apply func(*agent.Definition) error) (agent.Agent, error) {
	for attempt := 1; ; attempt++ {
		a, err := h.find(r, caller)
		switch {
		case err != nil:
			return a, err
		case a.Declared:
			return a, isDeclared(a)
		case a.Unsupported != "":
			return a, fault.New(fault.Conflict, "unsupported", "agent %s: %s", a.ID, a.Unsupported)
		}
		before := a.Clone()
		if err := apply(&a.Definition); err != nil {
			return a, err
		}
		if a.Equal(before) {
			return a, nil
		}
		if a.Name != before.Name {
			if err := h.checkDeclaredName(caller, a.Name); err != nil {
				return a, err
			}
		}
		if err := a.Check(); err != nil {
			return a, surface.Refused(err, anAgent(a.ID))
		}
		a.UpdatedAt = h.o.Now()
		err = h.o.Store.UpdateAgent(r.Context(), a.Version, a, h.author(caller))
		if errors.Is(err, org.ErrChanged) && attempt < maxAttempts {
			continue
		}
		a.Version++
		return a, surface.Refused(err, anAgent(a.ID))
	}
}

// maxAttempts is how often a change is applied while other requests change the agent.
const maxAttempts = 20

// checkDeclaredName refuses a name that the configuration file uses.
func (h *Handler) checkDeclaredName(caller caller.Caller, name string) error {
	for _, a := range h.declared(caller) {
		if a.Name == name {
			return fault.New(fault.Conflict, "exists", "the configuration file already declares the agent %q; choose another name", name).In("name")
		}
	}
	return nil
}

// NewKit returns the kit for [Options.Kit].
func NewKit(o surface.Options) *surface.Handler {
	return surface.New(o, surface.Surface{
		Name: agent.Surface, Errors: Errors(),
		Defaults: settings.Defaults{Rounds: agent.DefaultMaxSteps, Parallelism: loop.Safe, ResultMaxChars: settings.AgentResultMaxChars, KeepBack: settings.AgentKeepBack, Continuations: settings.AgentContinuations},
	})
}
