package chat

import (
	"context"
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/policy"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/settings"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Handler answers POST /v1/chat/completions and GET /v1/models.
type Handler struct{ kit *surface.Handler }

// resultMaxBytes is how much of a tool's result the model gets.
const resultMaxBytes = 64 << 10

// New returns a Handler.
func New(o surface.Options) *Handler {
	return &Handler{surface.New(o, surface.Surface{
		Name: "chat", Dialect: model.DialectChat, RelayPath: "/chat/completions", Decode: decodeRequest, Errors: Errors(), Progress: true,
		Members: bodyNames, CheckRelay: checkRelay, Functions: functionNames, Switches: switches, SessionMember: sessionMember,
		Defaults: settings.Defaults{WaitFor: true, Parallelism: loop.Parallel, DoomLoop: policy.Nudge, ResultMaxBytes: resultMaxBytes},
	})}
}

// Serve answers POST /v1/chat/completions.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	return h.kit.Serve(w, r, caller)
}

// turnOf returns how many messages of the user are before the last one.
func turnOf(items []item.Item) *int {
	n := 0
	for i := range items {
		if items[i].Kind == item.Message && items[i].Role == item.User {
			n++
		}
	}
	return new(max(0, n-1))
}

// decodeRequest implements surface.Surface.Decode.
func decodeRequest(_ context.Context, caller caller.Caller, req *run.Request, members []surface.Member) (surface.Reply, error) {
	asked, err := decode(req, members)
	if err == nil {
		err = continueSession(caller, req, members)
	}
	return surface.Reply{
		Stream: asked.stream, MaxTokens: asked.maxTokens, Context: asked.context, Dropped: asked.dropped, Hosted: asked.hosted, Functions: functionNames(members),
		Turn: turnOf(req.Items), Required: asked.required,
		Object: func(a *surface.Answer) surface.Object { return whole{a} },
		Encoder: func(s *surface.Stream) surface.Encoder {
			return &encoder{Stream: s, includeUsage: asked.includeUsage, spoke: -1}
		},
	}, err
}
