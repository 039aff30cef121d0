// Package agents is the REST API of agents below /api/agents, with /api/sessions, /api/tools and
// /api/settings. It stores what an org says of its agents, and runs them: each turn of a session is a durable
// run, whose events a projection turns into the frames of the API.
//
//	request ─► fields (400 names the member) ─► agent.Definition.Check ─► agent.Store: a new version
//
// Each duty has a type: definitions (with lookup), customTools, sessions, runs, observed and orgSettings.
//
// Agents of the configuration file are shown with "declared": true and cannot be changed here. An id that
// another org has is answered as one that does not exist.
package agents

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/settings"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Settings reads what is stored of an org, and keeps the settings that are secret. Implemented by store/database.
type Settings interface {
	Org(ctx context.Context, id string) (org.Record, error)
	Secrets(ctx context.Context, org string) ([]org.Secret, error)
	PutSecret(ctx context.Context, s org.Secret, by org.Author) error
	DeleteSecret(ctx context.Context, org, name string, by org.Author) error
}

// Runner performs runs. Implemented by *run.Runner.
type Runner interface {
	Follow(ctx context.Context, f eventlog.Follow, sink eventlog.Sink) error
	Cancel(ctx context.Context, orgID, runID string, by org.Author) error
}

// Inbox takes the messages for sessions. Implemented by [run.Inbox].
type Inbox interface {
	Place(ctx context.Context, req *run.Request, busy run.WhenBusy) (run.Placed, error)
	Leave(ctx context.Context, orgID, runID, principal string) error
	EndOrphaned(ctx context.Context) error
}

// Decisions decides approvals. Implemented by [run.Decisions].
type Decisions interface {
	Decide(ctx context.Context, orgID, id string, d journal.Decision, by run.Decider) (journal.Approval, error)
	DecideNext(ctx context.Context, n run.Next, by run.Decider) (journal.Approval, error)
}

// Tools are those of MCP servers.
type Tools struct {
	// Selects reports whether selects holds for one of them, by the name that the model sees and the server's own.
	Selects func(selects func(name, own string) bool) bool

	// Unavailable names the servers that could not list theirs.
	Unavailable []string
}

// Servers connects to the MCP servers of agents. Implemented by package app.
type Servers interface {
	// List asks an MCP server of an agent for its tools. reason says why it failed, without addresses.
	List(ctx context.Context, s org.MCPServer) (tools []tool.Tool, reason string, err error)
	// Tools returns the tools of MCP servers that runs of an agent with these servers of its own get.
	Tools(ctx context.Context, caller caller.Caller, own []org.MCPServer) (Tools, error)
	// Approvals returns what the MCP servers of an agent say of approvals.
	Approvals(orgID string, s agent.Snapshot) []settings.Server
}

// Orgs is the rest of the gateway, which has a part in what an org says of its agents. Implemented by package app.
type Orgs interface {
	// Declared returns the agents of the configuration file, in its order.
	Declared(orgID string) []agent.Agent
	// MissingFor says what an org has to set before calls of a built-in tool can succeed; "" = nothing.
	MissingFor(ctx context.Context, orgID, tool string) string
	// Reload is called after settings of the org have changed. The next request sees them.
	Reload(ctx context.Context, orgID string) error
	// SecretChanged is called after a secret of the org has changed.
	SecretChanged(ctx context.Context, orgID, name string) error
	// SessionDeleted is called for each session that was deleted.
	SessionDeleted(orgID, session string)
}

// Options are what a Handler needs. All but Vault are required.
type Options struct {
	Store    agent.Store
	Settings Settings
	Vault    *secret.Keyring // nil = secret settings cannot be stored
	Reader   Reader

	Kit           *surface.Handler // resolves models and settings of runs
	Sessions      agent.Sessions
	Conversations journal.Conversations
	Archive       journal.Archive
	HookMessages  journal.HookMessagesOfRun
	Observed      agent.Observed
	Runner        Runner
	Inbox         Inbox
	Decisions     Decisions
	Segments      surface.Segments

	Servers Servers
	Orgs    Orgs
	Judge   func(url string) error // refuses what the outbound policy refuses without a lookup
	NewID   func(prefix string) string
	Log     *slog.Logger
	Now     func() time.Time
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
type Handler struct {
	agents   definitions
	tools    customTools
	sessions sessions
	runs     runs
	observed observed
	settings orgSettings
}

// New returns a Handler.
func New(o Options) *Handler {
	b := base{o.Log, o.Now, o.NewID}
	h := &Handler{
		agents:   definitions{lookup{b, o.Store, o.Orgs}, o.Kit, o.Reader, o.Vault, o.Servers, o.Judge},
		tools:    customTools{b, o.Store, o.Reader, o.Orgs, o.Judge},
		observed: observed{b, o.Observed},
		settings: orgSettings{b, o.Store, o.Settings, o.Vault, o.Kit, o.Orgs},
	}
	h.sessions = sessions{b, &h.agents.lookup, o.Sessions, o.Conversations, o.Archive, o.Segments, o.Inbox, o.Orgs}
	h.runs = runs{
		b, &h.agents.lookup, &h.sessions, o.Kit, o.Sessions, o.Archive, o.HookMessages, o.Runner, o.Servers, o.Inbox, o.Decisions,
	}
	return h
}

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
	if h == nil {
		h = new(Handler)
	}
	managers := surface.Group{Errors: Errors(), Roles: surface.Managers, MaxBody: surface.MaxManagementBody}
	users, readers := managers.By(surface.RunReaders), managers.By(surface.Readers)
	starters, runners, deciders := surface.ModelRequests(Errors()), managers.By(surface.Runners), managers.By(surface.Deciders)
	unknownSessions := managers
	unknownSessions.Hint = "GET /api/agents/{id}/sessions lists the sessions of an agent, and GET /api/sessions/{id} shows one"
	return []surface.Route{
		users.Route("GET /api/agents", h.agents.List()),
		managers.Route("POST /api/agents", h.agents.Create()),
		users.Route("GET /api/agents/{id}", h.agents.Get()),
		managers.Route("PATCH /api/agents/{id}", h.agents.Patch()),
		managers.Route("DELETE /api/agents/{id}", h.sessions.DeleteAgent()),
		managers.Route("POST /api/agents/{id}/archive", h.agents.Archive(true)),
		managers.Route("POST /api/agents/{id}/restore", h.agents.Archive(false)),
		readers.Route("GET /api/agents/{id}/versions", h.agents.Versions()),
		readers.Route("GET /api/agents/{id}/versions/{version}", h.agents.Version()),
		readers.Route("GET /api/agents/{id}/mcp-servers", h.agents.Servers()),
		managers.Route("POST /api/agents/{id}/mcp-servers", h.agents.AddServer()),
		readers.Route("GET /api/agents/{id}/mcp-servers/{sid}", h.agents.Server()),
		managers.Route("GET /api/agents/{id}/mcp-servers/{sid}/tools", h.agents.ServerTools()),
		managers.Route("PUT /api/agents/{id}/mcp-servers/{sid}", h.agents.ChangeServer()),
		managers.Route("DELETE /api/agents/{id}/mcp-servers/{sid}", h.agents.RemoveServer()),
		readers.Route("GET /api/agents/{id}/hooks", h.agents.Hooks()),
		managers.Route("POST /api/agents/{id}/hooks", h.agents.AddHook()),
		readers.Route("GET /api/agents/{id}/hooks/{hid}", h.agents.Hook()),
		managers.Route("DELETE /api/agents/{id}/hooks/{hid}", h.agents.RemoveHook()),
		readers.Route("GET /api/agents/{id}/tools", h.agents.Assignments()),
		managers.Route("POST /api/agents/{id}/tools", h.agents.AssignTool()),
		managers.Route("PATCH /api/agents/{id}/tools/{aid}", h.agents.ChangeAssignment()),
		managers.Route("DELETE /api/agents/{id}/tools/{aid}", h.agents.RemoveAssignment()),
		starters.Route("POST /api/agents/{id}/run", h.runs.Run),
		starters.Route("POST /api/agents/{id}/run/stream", h.runs.Stream),
		users.Route("GET /api/agents/{id}/sessions", h.sessions.Sessions()),
		runners.Route("POST /api/agents/{id}/sessions", h.sessions.CreateSession()),
		runners.Route("DELETE /api/agents/{id}/sessions/{sid}", h.sessions.DeleteSession("sid")),
		apart(users).Route("GET /api/agents/runs/{id}", surface.Admitted(h.runs.GetRun)),
		apart(users).Open().Route("GET /api/agents/runs/{id}/events", h.runs.Events),
		apart(runners).Route("POST /api/agents/runs/{id}/cancel", h.runs.CancelRun()),
		apart(deciders).Route("POST /api/agents/runs/{id}/approve", h.runs.ApproveRun()),
		apart(managers).Route("/api/agents/runs/", nil), // unknown paths
		managers.Route("/api/agents/", nil),

		users.Route("GET /api/sessions/{id}", h.sessions.Session()),
		users.Route("GET /api/sessions/{id}/messages", h.sessions.Messages()),
		users.Route("GET /api/sessions/{id}/inputs", h.sessions.Inputs()),
		users.Route("GET /api/sessions/{id}/runs", h.runs.SessionRuns()),
		runners.Route("DELETE /api/sessions/{id}", h.sessions.DeleteSession("id")),
		runners.Route("POST /api/sessions/{id}/rewind", h.sessions.Rewind()),
		runners.Route("POST /api/sessions/{id}/fork", h.sessions.Fork()),
		unknownSessions.Route("/api/sessions/", nil),

		users.Route("GET /api/tools", h.tools.Tools()),
		managers.Route("POST /api/tools", h.tools.CreateTool()),
		users.Route("GET /api/tools/{id}", h.tools.Tool()),
		managers.Route("PUT /api/tools/{id}", h.tools.ChangeTool()),
		managers.Route("DELETE /api/tools/{id}", h.tools.RemoveTool()),
		managers.Route("/api/tools/", nil),

		readers.Route("GET /api/settings", h.settings.Settings()),
		managers.Route("PUT /api/settings", h.settings.PutSettings()),
		managers.Route("PUT /api/settings/{key}", h.settings.PutSetting()),
		managers.Route("DELETE /api/settings/{key}", h.settings.DeleteSetting()),
		managers.Route("POST /api/settings/reset-category", h.settings.ResetCategory()),
		managers.Route("/api/settings/", nil),

		users.Route("GET /api/observability/agent-runs", h.observed.ObservedRuns()),
		users.Route("GET /api/observability/tool-calls", h.observed.ObservedCalls()),
		users.Route("GET /api/observability/orchestration-runs", h.observed.ObservedOrchestrations()),
		users.Route("GET /api/observability/filter-options", h.observed.FilterOptions()),
		users.Route("GET /api/observability/health", h.observed.ObservedHealth()),
		managers.Route("/api/observability/", nil),
	}
}

// apart returns the group for routes of runs, whose paths are those of an agent with the id runs, too.
func apart(g surface.Group) surface.Group {
	g.Apart = "/api/agents/runs/"
	return g
}

// base is what all endpoints need.
type base struct {
	log   *slog.Logger
	now   func() time.Time
	newID func(prefix string) string
}

func (b *base) endpoint(serve func(*http.Request, caller.Caller) (int, any, error)) surface.Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		return surface.Managed(b.log, serve)(w, r, caller)
	}
}

// millis is how precisely the API writes times.
const millis = surface.Milliseconds

// findAgent says how the id of an agent is found.
const findAgent = "GET /api/agents?name=NAME finds the id of an agent by its name"

// The things of the API, for the errors of its stores.

func anAgent(id string) surface.Thing    { return surface.Thing{Kind: "agent", ID: id, Hint: findAgent} }
func aSession(id string) surface.Thing   { return surface.Thing{Kind: "session", ID: id} }
func aRun(id string) surface.Thing       { return surface.Thing{Kind: "run of an agent", ID: id} }
func customTool(id string) surface.Thing { return surface.Thing{Kind: "custom tool", ID: id} }

// NewKit returns the kit for [Options.Kit].
func NewKit(o surface.Options) *surface.Handler {
	return surface.New(o, surface.Surface{
		Name: agent.Surface, Errors: Errors(),
		Defaults: settings.Defaults{Rounds: agent.DefaultMaxSteps, Parallelism: loop.Safe, ResultMaxChars: settings.AgentResultMaxChars, KeepBack: settings.AgentKeepBack, Continuations: settings.AgentContinuations},
	})
}
