package surface

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/settings"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Endpoint answers one request of an authenticated caller. An error is returned before
// anything is written; the HTTP server answers with it, in the format of the route.
type Endpoint func(http.ResponseWriter, *http.Request, caller.Caller) error

// Surface is an API for model requests: everything in which one differs from another.
// All fields but Members, CheckRelay, AlwaysLoop, Functions, SessionMember, Progress, Switches and Defaults are required.
type Surface struct {
	// Name is stored with runs and is part of the hash of requests with an
	// Idempotency-Key. It must never change.
	Name string
	// Dialect is what its requests are written in, such as model.DialectChat. A request
	// with the loop off is passed on unchanged to a provider that speaks it, at
	// RelayPath below the provider's URL.
	Dialect, RelayPath string
	// Decode fills the request from the members of the body, of which the last of a name
	// counts. "model" is decoded already. The policy is not known yet; Relay is, if the
	// loop is off.
	Decode func(context.Context, caller.Caller, *run.Request, []Member) (Reply, error)
	// Members are the names of the members of a body that the API defines. A body with one that
	// differs from them only by case is refused. nil checks nothing.
	Members []string
	// CheckRelay refuses a request that must not be passed on to a provider; nil = none is
	// refused.
	CheckRelay func([]Member) error
	// AlwaysLoop says that its requests run the agent loop also for an org without MCP
	// servers. Only the header turnpike-mcp-disabled switches the loop off.
	AlwaysLoop bool
	// Functions returns the names of the functions that a body defines as tools; nil = such requests engage no
	// loop. It is only needed without AlwaysLoop.
	Functions func([]Member) []string
	// SessionMember is the member of a body that names a session: such requests run the agent loop. "" = there is none.
	SessionMember string
	// Progress says that its streams have the events of the extension progress.
	Progress bool
	// Switches reads what a body says of the agentic runtime; nil = the API has no such members.
	Switches func([]Member) (*Switched, error)
	// Defaults are its settings for what an org leaves open.
	Defaults settings.Defaults
	// Errors is the error format of its routes.
	Errors *Errors
}

// Reply is the form of the answer that a client asks for.
type Reply struct {
	// Stream asks for server-sent events.
	Stream bool
	// MaxTokens limits the output of one model call; 0 = no limit.
	MaxTokens int64
	// Calls limits the tool calls of the run, within the limit of the org; 0 = that limit.
	Calls int
	// NoStore says that nothing of the request and its answer is to be stored when the run
	// has ended.
	NoStore bool
	// Native says that the answer has items that only the dialect of the surface can express.
	Native bool
	// Hosted are the tools of MCP servers that answer hosted tools of the request.
	Hosted []loop.HostedTool
	// CodeAt is where the request has the hosted tool that runs code; "" = it has none.
	CodeAt string
	// Context is what the request says of prompts that are too long.
	Context Context
	// Queued, if not nil, says that the run is queued: a client that asks for no stream does not wait
	// for it, and Queued answers with what there is of it.
	Queued func(w http.ResponseWriter, r *http.Request, runID string) error
	// Functions are the names of those client tools of the request that are functions under the client's own
	// names: the tool dispatch URL can execute them.
	Functions []string
	// Dropped are the members of the body that a run cannot carry. They are left out and
	// named in the header Turnpike-Dropped-Params, or refused if the org says so.
	Dropped []string

	extensions Extensions

	// Turn is how many messages of the user are before the last one of the request; nil = it is not said.
	Turn *int

	// Required are the files that the run is to make. The answer says which it has not made.
	Required []file.Required

	// KeepsTexts says that Object and Encoder keep what they need of the texts of the
	// model, with [Answer.Keep]. Then the Answer has no Rounds.
	KeepsTexts bool
	// Object returns what makes the JSON object of an answer without a stream. Required.
	Object func(*Answer) Object
	// Encoder returns the encoder of an answer with a stream. Required.
	Encoder func(*Stream) Encoder
}

// Runner performs runs. Implemented by *run.Runner.
type Runner interface {
	Run(ctx context.Context, req *run.Request, sink eventlog.Sink) error
	Start(ctx context.Context, req *run.Request) (runID string, err error)
	Dropped(ctx context.Context, req *run.Request) ([]run.Dropped, error)
	CountInput(ctx context.Context, req *run.Request) (tokens int64, estimated bool, err error)
}

// Options are what a Handler needs; all are required unless they say otherwise.
type Options struct {
	// MaxRoundsCap returns the operator's cap on the rounds of a run, whatever an
	// org has stored; 0 = the operator has set none.
	MaxRoundsCap func() int

	// Compaction returns what the operator says of prompts that are too long; nil = nothing.
	Compaction func() settings.Compaction

	// Dispatches reports whether the tool dispatch URL executes the tools of this name that requests define;
	// nil = there is no such URL.
	Dispatches func(name string) bool

	// Files are the files of keys, whose content is put in place of their ids; nil = ids are passed on.
	Files Files

	// Fetch returns what a URL of a client names; nil = URLs of files are passed on. An error that is a [tool.Blocked] is that of the
	// outbound policy; the text of any other is for the client.
	Fetch func(ctx context.Context, url string, memory tool.Memory) ([]byte, error)

	// KeepFor returns how long what a request asks to be stored is stored.
	KeepFor func() time.Duration

	Runner Runner
	Router *route.Router
	Models *route.Listing
	// Price returns what a target costs today; nil = nothing has a price.
	Price func(loop.Target) money.Price
	// Relayed are the paths of the endpoints beside chat and responses, such as /v1/embeddings, for
	// the list of models.
	Relayed    []string
	Catalog    *catalog.Catalog
	Heartbeats *sse.Heartbeats
	Log        *slog.Logger
}

// Handler answers the model requests of a surface.
type Handler struct {
	o Options
	s Surface
}

// New returns the handler of a surface.
func New(o Options, s Surface) *Handler { return &Handler{o, s} }

// Serve answers one model request. It is an [Endpoint].
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	err := h.serve(w, r, caller)
	h.logInternal(err)
	return err
}

// read reads a request as far as it is the same for all surfaces.
func (h *Handler) read(r *http.Request, caller caller.Caller) (req *run.Request, body []byte, members []Member, err error) {
	if body, err = readBody(r); err != nil {
		return nil, nil, nil, err
	}
	if members, err = Scan(caller.Account, body); err != nil {
		return nil, nil, nil, err
	}
	for _, m := range members {
		if err := checkName("", m.Name, h.s.Members); err != nil {
			return nil, nil, nil, err
		}
	}
	name, err := modelName(members)
	if err != nil {
		return nil, nil, nil, err
	}
	targets, err := h.targets(caller, name)
	if err != nil {
		return nil, nil, nil, err
	}
	if caller.Principal.Access.EndUsers && EndUser(members) == "" {
		return nil, nil, nil, noEndUser()
	}
	req = &run.Request{
		Who:   run.Who{Org: caller.Org.ID, Principal: caller.Principal.ID, Surface: h.s.Name, EndUser: EndUser(members), Account: caller.Account},
		Input: run.Input{Conversation: run.Conversation{Dialect: h.s.Dialect}, Model: name, Targets: targets},
	}
	if caller.LoopActive() {
		req.Servers = caller.Servers
	}
	return req, body, members, nil
}

func noEndUser() *fault.Error {
	return fault.New(fault.Invalid, "end_user_required", "requests with this API key must name their end user: set safety_identifier, user or metadata.user_id").In("safety_identifier")
}

// countTimeout is how long the tokens of a request may be counted. That may list the tools
// of MCP servers and ask the provider.
const countTimeout = time.Minute

// CountInput returns how many tokens the input of a request has: see [run.Runner.CountInput].
// The header of the answer names the members that a run would leave out.
func (h *Handler) CountInput(w http.ResponseWriter, r *http.Request, caller caller.Caller) (tokens int64, estimated bool, err error) {
	req, body, members, err := h.read(r, caller)
	if err == nil {
		err = CheckJSON(body)
	}
	if err == nil {
		err = ChargeDecoded(caller.Account, members)
	}
	if err != nil {
		return 0, false, err
	}
	switched, err := h.switched(r.Header, caller, members)
	if err != nil {
		return 0, false, err
	}
	if optedOut(r.Header) {
		req.Servers = nil
	} else {
		switched.engage(caller, req)
	}
	ctx, cancel := context.WithTimeout(r.Context(), countTimeout)
	defer cancel()
	reply, err := h.s.Decode(ctx, caller, req, members)
	if err == nil {
		err = IncludeFiles(ctx, h.o.Files, caller, req.Items)
	}
	if err == nil {
		err = h.includeInputs(ctx, switched, caller, req, &reply)
	}
	if err != nil {
		return 0, false, err
	}
	if len(req.RequestServers) > 0 {
		return 0, false, fault.New(fault.Invalid, "unsupported_value", "tools: the tools of an MCP server are known only when a run lists them; "+
			"leave out the tools of type mcp").In("tools")
	}
	if err := h.setPolicy(r.Header, req, caller, settings.Request{NoTools: req.ToolChoice.Mode == model.ChooseNone, MaxTokens: reply.MaxTokens, Hosted: reply.Hosted}); err != nil {
		return 0, false, err
	}
	if err := h.nameDropped(w, r.WithContext(ctx), req, reply.Dropped); err != nil {
		return 0, false, Failed(h.o.Log, err)
	}
	tokens, estimated, err = h.o.Runner.CountInput(ctx, req)
	return tokens, estimated, Failed(h.o.Log, err)
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	req, body, members, err := h.read(r, caller)
	if err != nil {
		return err
	}
	hooked := len(settings.Hooks(caller.Org.Runtime, caller.Principal.ID, caller.Principal.Access.Makers, 0)) > 0
	if hooked && optedOut(r.Header) {
		return fault.New(fault.Forbidden, "hooks_required", "the API key has hooks, and only the agent loop runs them; leave out the header turnpike-mcp-disabled")
	}
	switched, err := h.switched(r.Header, caller, members)
	if err != nil {
		return err
	}
	if reason := h.relays(r.Header, caller, members, switched, hooked); reason != "" {
		req.Relay = &run.Relay{Reason: reason}
		req.ID, req.Servers = caller.RequestID, nil
		if !h.o.Router.FallsBack(req.Model) { // the caller retries by itself
			req.Targets = req.Targets[:1]
		}
		if len(req.Targets) == 1 && req.Targets[0].Relays(h.s.Dialect) {
			if h.s.CheckRelay != nil {
				if err := h.s.CheckRelay(members); err != nil {
					return err
				}
			}
			if _, err := h.s.extensionsOf(r.Header, nil, true, false); err != nil {
				return err
			}
			if err := h.setPolicy(r.Header, req, caller, settings.Request{MaxTokens: maxTokens(members, 1)}); err != nil {
				return err
			}
			return h.relay(w, r, req, body, members)
		}
	}
	if err := CheckJSON(body); err != nil {
		return err
	}
	if req.Relay == nil { // a relay is not stored: there is nothing to come back to
		if req.Key, err = SubmitKey(r.Header, caller.Principal.ID, h.s.Name, body); err != nil {
			return err
		}
		switched.engage(caller, req)
	}
	return h.run(w, r, req, members, caller, switched)
}

// relays returns why the request is relayed; "" = it runs the agent loop. This is the only place that decides.
func (h *Handler) relays(header http.Header, caller caller.Caller, members []Member, switched *Switched, hooked bool) run.RelayReason {
	switch {
	case optedOut(header):
		return run.RelayOptedOut
	case hooked, caller.LoopActive(), h.s.AlwaysLoop, h.engages(caller, members), switched.engaged(caller):
		return ""
	}
	return run.RelayNoLoop
}

// run decodes the request, performs the agent loop or a translated relay, and answers
// in the form that was asked for.
func (h *Handler) run(
	w http.ResponseWriter, r *http.Request, req *run.Request, members []Member, caller caller.Caller, switched *Switched,
) error {
	relayed := req.Relay != nil
	if err := ChargeDecoded(caller.Account, members); err != nil {
		return err
	}
	reply, err := h.s.Decode(r.Context(), caller, req, members)
	if err == nil {
		err = IncludeFiles(r.Context(), h.o.Files, caller, req.Items)
	}
	if err == nil && !relayed {
		if err = h.dispatch(caller, req, reply.Functions); err == nil {
			err = h.includeInputs(r.Context(), switched, caller, req, &reply)
		}
	}
	if err != nil {
		return err
	}
	req.Decider = run.KeyDecider(caller.Org, caller.Principal, org.Author{Principal: caller.Principal.ID})
	if reply.extensions, err = h.s.extensionsOf(r.Header, caller.Org.Runtime.Extensions, relayed, hidesTools(req)); err != nil {
		return err
	}
	if !relayed {
		if err := switched.checkStream(reply.Stream); err != nil {
			return err
		}
		switched.extend(&reply.extensions, h.s, caller, req)
	}
	asked := settings.Request{
		Switches: switched.asks(), Keyed: req.Key != nil, Queued: reply.Queued != nil, NoTools: req.ToolChoice.Mode == model.ChooseNone,
		MaxTokens: reply.MaxTokens, Calls: reply.Calls, NoStore: reply.NoStore, Hosted: reply.Hosted,
		Context: reply.Context.Mode, CompactAt: reply.Context.At,
	}
	if reply.Native {
		asked.Native = h.s.Dialect
	}
	if reply.Stream {
		asked.Live = liveDeltas(relayed)
	}
	if err := h.setPolicy(r.Header, req, caller, asked); err != nil {
		return err
	}
	if req.Store != nil {
		req.Store.For, req.Store.FinalOnly = h.o.KeepFor(), req.Policy.StreamMode == string(org.FinalOnly)
	}
	if len(req.RequestServers) > 0 && (relayed || !caller.Org.MCPOutbound) {
		return undeclarable(caller.Org.MCPOutbound)
	}
	if err := checkDeclared(req, caller.Principal.Access); err != nil {
		return err
	}
	if err := h.nameDropped(w, r, req, reply.Dropped); err != nil {
		return err
	}
	if reply.Queued != nil {
		req.Background, req.MaxQueued = true, settings.MaxQueued(caller.Org.Runtime)
	}
	stream := reply.Stream && req.Policy.StreamMode != string(org.Disabled)
	switch {
	case !stream && reply.Queued != nil:
		runID, err := h.o.Runner.Start(r.Context(), req)
		if err != nil {
			return unlessGone(r, err)
		}
		w.Header().Set(runIDHeader, runID)
		return reply.Queued(w, r, runID)
	case !stream:
		return h.answerJSON(w, r, req, caller, reply)
	}
	req.Attach = true
	return h.answerStream(w, r, req, caller, reply)
}

// undeclarable refuses the MCP servers of a request whose run cannot have any.
func undeclarable(loopOff bool) *fault.Error {
	if loopOff {
		return fault.New(fault.Invalid, "unsupported_value", "tools: the agent loop is switched off for this request, and only the loop calls MCP servers; "+
			"leave out the tools of type mcp, or the header turnpike-mcp-disabled").In("tools")
	}
	return fault.New(fault.Forbidden, "mcp_not_enabled", "tools: MCP servers are not enabled for the org; leave out the tools of type mcp, "+
		"or ask the operator to enable the org's feature mcp_outbound").In("tools")
}

// checkDeclared refuses a server by URL to a key that may use only some servers of the org.
func checkDeclared(req *run.Request, access org.Access) error {
	if access.AllowsAddresses() || !slices.ContainsFunc(req.RequestServers, func(d run.RequestServer) bool { return !d.URL.IsZero() }) {
		return nil
	}
	return fault.New(fault.Forbidden, "server_not_allowed", "tools: this API key may use only MCP servers of the org, and no others by server_url; "+
		"leave out server_url to use the org's server with the label, or use another key").In("tools")
}

// setPolicy resolves the settings of the run.
func (h *Handler) setPolicy(header http.Header, req *run.Request, caller caller.Caller, asked settings.Request) (err error) {
	asked.Relay, asked.Key, asked.KeyAccess, asked.EndUser = req.Relay != nil, caller.Principal.ID, caller.Principal.Access, req.EndUser
	if asked.MaxCost, err = maxCost(header); err != nil {
		return err
	}
	for _, s := range req.Servers {
		asked.Servers = append(asked.Servers, settings.Server{Name: s.Name, Approval: s.Approval, ApprovalTimeout: s.ApprovalTimeout, Trust: s.Trust, MaxUses: s.MaxUses})
	}
	for _, d := range req.RequestServers {
		asked.RequestServers = append(asked.RequestServers, settings.RequestServer{Name: d.Server(), ByURL: !d.URL.IsZero(), Approval: d.Approval})
	}
	asked.KeyContext = caller.Principal.Access.Context
	operator := settings.Operator{MaxRoundsCap: h.o.MaxRoundsCap()}
	if h.o.Compaction != nil {
		operator.Compaction = h.o.Compaction()
	}
	req.Policy = settings.Resolve(operator, caller.Org.Runtime, h.s.Defaults, asked)
	req.PausedFor = settings.ApprovalHold(caller.Org.Runtime)
	if h.s.Defaults.WaitFor {
		req.WaitFor = settings.ApprovalHold(caller.Org.Runtime)
	}
	return nil
}

// nameDropped says which members of the request are left out, here or by a provider
// that may serve it, or refuses them.
func (h *Handler) nameDropped(w http.ResponseWriter, r *http.Request, req *run.Request, dropped []string) error {
	refuse := req.Policy.RefuseDropped
	if refuse && len(dropped) > 0 {
		names := listOf(dropped)
		if !req.Targets[0].Relays(h.s.Dialect) {
			return notTaken(req.Targets[0].Provider, names).In(dropped[0])
		}
		return fault.New(fault.Invalid, "unsupported_parameter", "the agent loop cannot carry %s; leave it out, or switch the loop off "+
			"for this request with the header turnpike-mcp-disabled: true", names).In(dropped[0])
	}
	byProviders, err := h.o.Runner.Dropped(r.Context(), req)
	if err != nil {
		return err
	}
	for _, left := range byProviders {
		if refuse {
			return notTaken(left.Provider, listOf(left.Params)).In(left.Params[0])
		}
		dropped = append(dropped, left.Params...)
	}
	if len(dropped) > 0 {
		w.Header().Set("Turnpike-Dropped-Params", listOf(once(dropped)))
	}
	return nil
}

// once sorts the names and leaves out repeated ones. An array is left out where one of its
// elements is named: a provider knows only that an item is not for it, and the surface
// knows which.
func once(names []string) []string {
	slices.Sort(names)
	names = slices.Compact(names)
	elements := map[string]bool{}
	for _, name := range names {
		if array, index, is := strings.Cut(name, "["); is && strings.IndexByte(index, ']') == len(index)-1 {
			elements[array] = true
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return elements[name] })
}

// The limits on a list of member names, in bytes. The names are the client's, and many
// clients and proxies refuse an answer with a header field of more than 8 KiB.
const (
	maxListed     = 2 << 10
	maxListedName = 128
)

// listOf returns the names with commas between them, and the number of those for which
// there is no room. A name that is long or has other characters than visible ASCII is
// cut and quoted.
func listOf(names []string) string {
	var b strings.Builder
	for i, name := range names {
		if len(name) > maxListedName {
			name = strconv.QuoteToASCII(name[:maxListedName] + "...")
		} else if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ',' || r == '"' }) {
			name = strconv.QuoteToASCII(name)
		}
		if b.Len()+len(name) > maxListed {
			fmt.Fprintf(&b, ",and %d more", len(names)-i)
			break
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(name)
	}
	return b.String()
}

// notTaken refuses members that the dialect of a provider cannot express.
func notTaken(provider, names string) *fault.Error {
	return fault.New(fault.Invalid, "unsupported_parameter",
		"the provider %s cannot take %s; leave it out, or use a model of another provider", provider, names)
}

// optedOut reads the header that switches the loop off for one request.
func optedOut(header http.Header) bool {
	for _, name := range []string{"Turnpike-Mcp-Disabled", "Floopy-Mcp-Disabled"} {
		switch strings.ToLower(strings.TrimSpace(header.Get(name))) {
		case "true", "1", "yes":
			return true
		}
	}
	return false
}

func (h *Handler) logInternal(err error) {
	if err != nil && fault.From(err).Code == fault.Internal {
		h.o.Log.Error("request failed", "error", err)
	}
}
