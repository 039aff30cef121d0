package run

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/relay"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Request is a request for a run, from a surface. The zero values of its parts say that a surface does not use them.
type Request struct {
	Who
	Input
	Reply

	// Policy has the settings of the run. They are recorded when the run is accepted, and
	// the run reads them only in its journal. A relay uses only MaxTokens and Live; its grade is [loop.Relay].
	Policy loop.Policy

	// Relay makes the request a relay: one model call without the agent loop, which is not stored. Of Input it uses
	// the fields of [Conversation] alone, and none if it has Raw. Nil = the run has the loop.
	Relay *Relay

	// Turn makes the run the next turn of a session of an agent. AgentSession is its id then, and OwnServers
	// connects the run with the MCP servers of the agent. Nil = the run is not a turn.
	Turn *journal.SessionTurn

	begins *beginning // what was read of the stored conversation for a run that is to begin; nil = nothing yet
}

// Who says on whose behalf a run acts, and under which ids it is recorded. Org, Principal and Surface are required.
type Who struct {
	Org       string
	Principal string
	Surface   string
	EndUser   string // whom the client names as its own user; "" = not named

	// Permissions are those of the caller of the run's tool calls, whose id is Principal: see
	// [tool.Caller]. A run that another process continues keeps them.
	Permissions []string

	// CallerOrg is the Org of that caller: that of a key of a gateway which the program is a part of. "" = none.
	CallerOrg string

	// AgentSession is recorded for the program that the run belongs to; "" = none. The driver does not read it.
	AgentSession string

	// Agent is the id of the agent whose run it is; "" = none. It is recorded for the sums of usage.
	Agent string

	// RunID is the id of the run; "" = one is made. It has the form of [id.NewOrdered], and no run
	// of the store has it. A relay has no use for it.
	RunID string

	// ID is the id of a relay in the audit log; "" = one is made. Other runs have a run
	// id, because several requests can follow one run.
	ID string

	// Within is the id of the run whose tool call the relay is a part of, for the audit log; "" = none.
	Within string

	// Account is charged with the memory that the run retains; nil = one is opened for
	// the run. The body of the request is already charged to it.
	Account *memlimit.Account
}

// Input is what a run works on: its conversation, its models and its tools.
type Input struct {
	Conversation

	Model   string         `json:"-"` // as the caller named it
	Targets []route.Target `json:"-"` // at least one, in configuration order

	// Affinity identifies the conversation to the router; "" = it is found in the conversation.
	Affinity string `json:"-"`

	// Dispatched are tools of the caller that the gateway executes, by the tool dispatch URL. They are not
	// among ClientTools.
	Dispatched []model.Tool `json:"dispatched_tools,omitempty"`

	// OwnContext says that Params ask a provider of Dialect to shorten prompts that are too long. One that
	// Options.ContextEdits asks is a model.ContextEditor.
	OwnContext bool `json:"-"`

	// Servers are the MCP servers of the run, and the run has the tools of exactly these:
	// those of the org, and those that the request brought ([catalog.Server].FromRequest).
	// Their names differ. The first ones win collisions of tools. A relay has none.
	Servers []catalog.Server `json:"-"`

	// RequestServers are the MCP servers that the request declares. The run adds them to Servers,
	// after those of the org, and connects to them.
	RequestServers []RequestServer `json:"-"`

	// OnlyOf are tools of servers that ToolChoice.Only also has, or that ToolChoice.Name
	// is, whatever the names under which the model sees them.
	OnlyOf []ServerTool `json:"only_of,omitempty"`

	// Listed are the labels of the servers whose tools the request has listed before:
	// the run does not list them again.
	Listed []string `json:"-"`

	// Places say where the request has each of Items, such as input[0], for errors.
	Places []string `json:"-"`

	// Continues is the stored conversation that Items continue. If it is named, they are added to it with
	// the output of the run, if Store is not nil.
	Continues conversation.Ref `json:"-"`

	// Answers continue the run of the approvals that they decide, instead of a new run. Late are
	// the Items that the caller adds to that run; the others are its history. Decider is who
	// answers; it is required with Answers.
	Answers []Answer    `json:"-"`
	Late    []item.Item `json:"-"`
	Decider Decider     `json:"-"`

	// Settings are hashes of the members of the request that must be the same, or absent, in a
	// request that continues the run, by name.
	Settings map[string]string `json:"settings,omitempty"`
}

// Conversation is what model calls are made of.
type Conversation struct {
	System      item.List          `json:"system,omitempty"` // in front of the conversation, and not part of it
	Items       item.List          `json:"items,omitempty"`
	ClientTools []model.Tool       `json:"client_tools,omitempty"`
	Hosted      []model.HostedTool `json:"hosted_tools,omitempty"`
	ToolChoice  model.ToolChoice   `json:"tool_choice,omitzero"`
	Options     model.Options      `json:"options,omitzero"`  // of every model call
	Params      []model.Param      `json:"params,omitempty"`  // the client's other members, in Dialect; Options are read from them
	Dialect     string             `json:"dialect,omitempty"` // in which the request is written
}

// Reply says how the answer of a run reaches its caller, and what is stored of it.
type Reply struct {
	// Key is the caller's Idempotency-Key. All requests with the same key are for one
	// durable run. Nil = none.
	Key *journal.SubmitKey

	// Attach is true if a repeat of Key may follow the run while it is in progress.
	// Otherwise the repeat is refused until the run has ended.
	Attach bool

	// WaitFor is how long Run stays while the run waits for approvals; 0 = it returns.
	WaitFor time.Duration

	// PausedFor is how long Run stays while the run waits for a raise of its limits.
	PausedFor time.Duration

	// Background says that the run is queued: it is durable, begins when a slot is free, and the caller need
	// not stay connected. MaxQueued is how many runs of the org may be queued; 0 = no limit.
	Background bool
	MaxQueued  int

	// Deferred says that what a run in the background continues is read when it begins, and not before: the
	// conversation is still going on.
	Deferred bool

	// Store says that the conversation is stored as a segment, for later
	// requests; nil = it is not. A relay stores none.
	Store *StoreOptions
}

// Relay is a request that is passed on without the agent loop.
type Relay struct {
	// Reason says why, for logs and traces.
	Reason RelayReason

	// Raw is the whole request for a provider that speaks the caller's dialect; nil = it is translated.
	// Its body belongs to the run, which releases its capacity from Account when it is freed.
	Raw *relay.Request

	// Content returns the body of Raw for a target that has this name for the model, in place of
	// Raw.Body: see [relay.Request]. It can be sent to one target after another. Nil = Raw.Body
	// is sent, to one target. PromptBytes is about how many bytes of text cost as much as the
	// request, for the estimate of its cost.
	Content     func(model string) (open func() io.ReadCloser, length int64)
	PromptBytes int64
}

// RelayReason is why a request is relayed.
type RelayReason string

// The reasons.
const (
	RelayOptedOut RelayReason = "opted_out" // the header of the request switches the loop off
	RelayNoLoop   RelayReason = "no_loop"   // neither the org nor the request engages the loop
	RelayEndpoint RelayReason = "endpoint"  // the endpoint has no loop, such as embeddings
	RelayInternal RelayReason = "internal"  // the gateway or the program makes one model call
)

// addsLater reports whether the run is accepted without its input: what a turn of a session continues is known
// only when no other turn of the session can begin or end any more.
func (r *Request) addsLater() bool { return r.Deferred || r.Turn != nil }

// caller returns on whose behalf the tools of the run are called.
func (r *Request) caller() tool.Caller {
	return tool.Caller{ID: r.Principal, Org: r.CallerOrg, Permissions: r.Permissions}
}

// Has reports whether Servers has one of this name.
func (r *Request) Has(server string) bool {
	return slices.ContainsFunc(r.Servers, func(s catalog.Server) bool { return s.Name == server })
}

// namesFromRequest returns the names of the servers that the request brought.
func (r *Request) namesFromRequest() (names []string) {
	for _, s := range r.RequestServers {
		names = append(names, s.Server())
	}
	for _, s := range r.Servers {
		if s.FromRequest && s.Name != loop.DispatchServer && !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	return names
}

// modelRequest returns a request for the items to a target, with the caller's own
// tools and without MaxTokens.
func (r *Request) modelRequest(target int, items []item.Item) *model.Request {
	t := r.Targets[target]
	return &model.Request{
		Model: t.Model, Items: shownTo(t.Target, items), Tools: slices.Concat(r.ClientTools, r.Dispatched), Hosted: r.Hosted, ToolChoice: r.ToolChoice,
		Options: r.Options, Params: r.Params, Dialect: r.Dialect,
	}
}

// shownTo returns the items that the model of a target gets.
func shownTo(t loop.Target, items []item.Item) []item.Item {
	if !t.Images {
		items = withoutImages(items)
	}
	return item.For(items, t.Provider)
}

// withoutImages returns the items for a model that is not known to take images: a text stands for each image in the results of
// the gateway's tools. What the client sent is its own decision.
func withoutImages(items []item.Item) []item.Item {
	out := items
	for i := range items {
		if items[i].Kind != item.ToolResult || items[i].Native.Dialect != "" || !slices.ContainsFunc(items[i].Parts, isImage) {
			continue
		}
		if &out[0] == &items[0] {
			out = slices.Clone(items)
		}
		out[i].Parts = slices.Clone(out[i].Parts)
		for j, p := range out[i].Parts {
			if !isImage(p) {
				continue
			}
			text := p.Describe()
			if j > 0 && out[i].Parts[j-1].Kind == item.Text { // a line of its own
				text = "\n" + text
			}
			if j+1 < len(out[i].Parts) && out[i].Parts[j+1].Kind == item.Text {
				text += "\n"
			}
			out[i].Parts[j] = item.Part{Kind: item.Text, Text: text, Cache: p.Cache}
		}
	}
	return out
}

func isImage(p item.Part) bool {
	return p.Kind == item.Image || p.Kind == item.Resource && strings.HasPrefix(p.MIMEType, "image/") && p.Data != ""
}

// asksToShorten reports whether the request asks the target's provider to shorten prompts that are too long.
func (r *Request) asksToShorten(t route.Target) bool {
	if len(r.Options.ContextEdits) > 0 {
		editor, ok := t.Client.(model.ContextEditor)
		return ok && editor.EditsContext()
	}
	return r.OwnContext && t.Relays(r.Dialect)
}

// Dropped are members of a request that a provider cannot take.
type Dropped struct {
	Provider string
	Params   []string // names in the request's dialect, sorted; at least one
}

// expectedTool returns a placeholder for the tools of the run's MCP servers, which are
// listed only when the run begins. In some dialects a forced choice of a tool excludes
// other members: an adapter can name them before the run.
func (r *Request) expectedTool() (model.Tool, bool) {
	if len(r.Servers)+len(r.RequestServers)+len(r.Dispatched) == 0 || r.Relay != nil {
		return model.Tool{}, false
	}
	name := r.ToolChoice.Name
	if len(r.ToolChoice.Only) > 0 {
		name = r.ToolChoice.Only[0]
	} else if name == "" && len(r.OnlyOf) > 0 {
		name = r.OnlyOf[0].Tool
	}
	const anyTool = "mcp" // a tool without a name would be one that only its provider executes
	return model.Tool{Definition: tool.Definition{Name: cmp.Or(name, anyTool), InputSchema: json.RawMessage(`{"type":"object"}`)}}, true
}

// held reports whether the run of the request may wait for approval or for a raise, and nobody can come back for
// its answer when the client has left.
func (r *Request) held() bool {
	return r.WaitFor > 0 && r.Key == nil && r.Relay == nil && (r.Policy.MayWait() || r.Policy.Pauses())
}

// show makes the org's server visible to the caller, with the tools that the request allows.
func (r *Request) show(s RequestServer) {
	i := slices.IndexFunc(r.Servers, func(have catalog.Server) bool { return have.Name == s.Label && !have.FromRequest })
	if i < 0 {
		return
	}
	have := &r.Servers[i]
	have.Shown, have.ReadOnly = true, s.ReadOnly
	switch {
	case have.Tools == nil:
		have.Tools = s.Tools
	case s.Tools != nil:
		have.Tools = slices.DeleteFunc(slices.Clone(have.Tools), func(name string) bool { return !slices.Contains(s.Tools, name) })
	}
}

// urlOf returns the URL of the org's server, without user information and query, because
// these may have secrets; "" if there is no such server, or its URL cannot be parsed.
func (r *Request) urlOf(server string) string {
	i := slices.IndexFunc(r.Servers, func(s catalog.Server) bool { return s.Name == server })
	if i < 0 {
		return ""
	}
	u, err := url.Parse(r.Servers[i].URL)
	if err != nil {
		return ""
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// conversationKey identifies the conversation of the request, so that its requests get the same
// target: the named conversation, or the key that the caller gives for the provider's prompt cache, or
// what the prompts of a conversation have in common, which ends with the first message of the user.
func (r *Request) conversationKey(items []item.Item) string {
	const cacheKey = "prompt_cache_key"
	switch {
	case r.Affinity != "":
		return r.Affinity
	case r.Continues.Named:
		return "session " + r.Continues.ID
	case r.Continues.Resent:
		return "session " + r.Principal + " " + r.Continues.ID
	}
	for _, p := range r.Params {
		if p.Name == cacheKey && len(p.Value) > 2 { // neither null nor empty
			return cacheKey + " " + string(p.Value)
		}
	}
	h := sha256.New()
	for _, it := range items {
		fmt.Fprintf(h, "%s %s\n", it.Kind, it.Role)
		for _, p := range it.Parts {
			fmt.Fprintf(h, "%s %s%s%s\n", p.Kind, p.Text, p.URL, p.Data)
		}
		if it.Kind == item.Message && it.Role == item.User {
			break
		}
	}
	return "prefix " + hex.EncodeToString(h.Sum(nil))
}

// isRaw reports whether the request is passed on unchanged.
func (r *Relay) isRaw() bool { return r != nil && r.Raw != nil }

// rawBytes returns the size of a request that is relayed unchanged, for the estimate of its cost.
func (r *Relay) rawBytes() int64 {
	switch {
	case !r.isRaw():
		return 0
	case r.Content != nil:
		return r.PromptBytes
	}
	return int64(len(r.Raw.Body))
}
