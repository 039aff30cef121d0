package responses

import (
	"context"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/settings"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
)

// Options are what a Handler needs; all are required unless they say otherwise.
type Options struct {
	surface.Options
	Conversations journal.Conversations // where responses are stored
	Runs          surface.StoredRuns
	Segments      surface.Segments
	Seals         *secret.Keyring // seals compacted conversations; nil = none can be made
}

// Handler answers POST /v1/responses, and requests for stored responses.
type Handler struct {
	storedResponses
	conversations
	compacting *surface.Handler // POST /v1/responses/compact
}

const (
	// defaultCalls is how many tools a response may call if its request does not limit it
	// further, and the most that it may allow.
	defaultCalls = 10

	// resultMaxBytes is how much of a tool's result the model gets.
	resultMaxBytes = 64 << 10
)

// New returns a Handler.
func New(o Options) *Handler {
	found := lookup{o.Conversations, o.KeepFor, o.Log}
	h := &Handler{storedResponses: storedResponses{lookup: found, runs: o.Runs, segments: o.Segments, errors: Errors()}}
	items := &storedItems{&h.storedResponses}
	requests := &requestReader{items, o.Seals}
	h.conversations = conversations{found, items, requests, keyedRequests{o.Conversations, o.Log}, o.Runs, o.Files}
	api := surface.Surface{
		Name: "responses", Dialect: model.DialectResponses, RelayPath: "/responses", Decode: requests.decodeRequest, Errors: h.errors, Members: bodyNames, CheckRelay: checkRelay, AlwaysLoop: true, Switches: switches,
		Defaults: settings.Defaults{
			Rounds: settings.MaxRounds, // a response ends for its calls
			Calls:  defaultCalls, Parallelism: loop.Safe, DoomLoop: policy.Nudge, ResultMaxBytes: resultMaxBytes, EndCut: true,
		},
	}
	h.kit = surface.New(o.Options, api)
	api.Name, api.RelayPath, api.Decode = "responses.compact", "/responses/compact", requests.decodeCompact
	h.compacting = surface.New(o.Options, api)
	return h
}

// Errors returns the error format of the API.
func Errors() *surface.Errors { return surface.OpenAIErrors(model.DialectResponses) }

// Serve answers POST /v1/responses.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	return h.kit.Serve(w, r, caller)
}

// inputTokens is how many tokens the input of a request has.
type inputTokens struct {
	Object    string `json:"object"`
	Tokens    int64  `json:"input_tokens"`
	Estimated bool   `json:"estimated,omitempty"` // not of the API: the provider did not count
}

// InputTokens answers POST /v1/responses/input_tokens.
func (h *Handler) InputTokens(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	tokens, estimated, err := h.kit.CountInput(w, r, caller)
	if err != nil {
		return err
	}
	return surface.WriteJSON(w, http.StatusOK, inputTokens{"response.input_tokens", tokens, estimated})
}

// requestReader reads requests that make responses.
type requestReader struct {
	items *storedItems    // those that a request refers to
	seals *secret.Keyring // see Options
}

// decodeRequest implements surface.Surface.Decode.
func (h *requestReader) decodeRequest(
	ctx context.Context, caller caller.Caller, req *run.Request, members []surface.Member,
) (surface.Reply, error) {
	d := h.newDecoder(ctx, caller, req)
	err := d.decode(members)
	reply := d.reply()
	if d.echo.background {
		reply.Queued = func(w http.ResponseWriter, r *http.Request, runID string) error {
			return h.items.write(w, r, caller, conversation.SegmentID(runID, ""), replay{})
		}
	}
	return reply, err
}

// newDecoder returns a decoder for a request of the caller.
func (h *requestReader) newDecoder(ctx context.Context, caller caller.Caller, req *run.Request) *decoder {
	d := newDecoder(req)
	found := itemFinder{items: h.items, ctx: ctx, caller: caller}
	d.find, d.dropFound = found.find, found.drop
	d.charge = func(kept, passing int) error { return surface.Charge(caller.Account, kept, passing) }
	d.seal, d.containers = h.sealOf(caller), keyContainers{h.items.storedResponses, ctx, caller}
	return d
}

// reply returns the form of the answer.
func (d *decoder) reply() surface.Reply {
	r := surface.Reply{
		Stream: d.stream, MaxTokens: d.maxTokens, Calls: d.calls, NoStore: !d.echo.Store, Native: d.echo.encrypted || len(d.req.Hosted) > 0 || d.req.OwnContext,
		Hosted: d.hosted, Context: d.context, Dropped: d.dropped, KeepsTexts: true,
		Object:  func(a *surface.Answer) surface.Object { return newEncoder(a, nil, d.echo, d.tools) },
		Encoder: func(s *surface.Stream) surface.Encoder { return newEncoder(&s.Answer, s, d.echo, d.tools) },
	}
	for _, c := range d.code {
		if c.tool.Type == builtin.HostedCode {
			r.CodeAt = c.at
		}
	}
	if !d.compacts {
		for _, t := range d.req.ClientTools {
			if _, other := d.tools.sent[t.Name]; !other { // a function that the model gets under its own name
				r.Functions = append(r.Functions, t.Name)
			}
		}
	}
	if d.compacts {
		r.Object = func(a *surface.Answer) surface.Object { return d.newCompactor(newEncoder(a, nil, d.echo, d.tools)) }
		r.Encoder = func(s *surface.Stream) surface.Encoder {
			return d.newCompactor(newEncoder(&s.Answer, s, d.echo, d.tools))
		}
	}
	return r
}

func (d *decoder) newCompactor(e *encoder) *compactor {
	return &compactor{encoder: e, seal: d.seal, kept: d.kept, alone: d.alone}
}
