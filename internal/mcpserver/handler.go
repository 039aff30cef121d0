package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-gateway/turnpike/internal/audit"
	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/ratelimit"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/spend"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Orgs knows who may do what at the moment. It is safe for concurrent use.
type Orgs interface {
	// Caller returns what a key of an org may use now; false if it is no valid key.
	Caller(orgID, principal string) (caller.Caller, bool)
}

// Audit keeps the audit log. It is safe for concurrent use.
type Audit interface {
	// Record stores the entry a little later.
	Record(ctx context.Context, org string, e audit.Entry) error
	// RecordNow returns when the entry is stored.
	RecordNow(ctx context.Context, org string, e audit.Entry) error
}

// Options are what a Handler needs. All but Tools, Recorded, RateClock, Living, Seals and Ring are required.
type Options struct {
	Catalog *catalog.Catalog
	Orgs    Orgs
	Audit   Audit
	Spend   *spend.Keeper

	// Tools are those of the program that the gateway is a part of. If it is a
	// [tool.Provider], each key gets the tools that it may use. Nil = none.
	Tools tool.Source

	MaxRoundsCap func() int                      // of the operator; 0 = not set
	Recorded     func(org string, e audit.Entry) // is called for each audit entry; nil = nobody is told
	Now          func() time.Time                // the wall clock
	RateClock    func() time.Time                // the clock of rate limits, which does not go back; nil = time.Now
	Living       func() int                      // replicas of the gateway, which share rate limits; nil = one
	Seals        *secret.Keyring                 // seals the ids of sessions, the same for all replicas; nil = there is one
	Log          *slog.Logger
	Version      string

	// Ring has [Handler.Heard] of the other replicas called, soon and at most once. Nil = there are none.
	Ring func(orgID, message string)
}

// Handler serves /mcp. Close it.
type Handler struct {
	o        Options
	sessions sessions
	rates    *ratelimit.Limiter // of calls

	stateful, stateless http.Handler // of the SDK

	open  context.Context // ends when the gateway begins to stop: streams end with it
	stop  context.CancelFunc
	life  context.Context // ends when no call may go on
	kill  context.CancelFunc
	calls sync.WaitGroup
	tasks sync.WaitGroup

	adopting sync.Mutex
	ended    map[string]struct{} // sessions that clients have ended, by mark; guarded by adopting

	mu     sync.Mutex
	closed bool
	fresh  map[string]bool // orgs whose lists are compared at the moment → whether to do it again
}

// New returns a Handler.
func New(o Options) *Handler {
	if o.RateClock == nil {
		o.RateClock = time.Now
	}
	h := &Handler{o: o, rates: ratelimit.NewWithClock(o.RateClock).Share(o.Living), fresh: map[string]bool{}, ended: map[string]struct{}{}}
	h.open, h.stop = context.WithCancel(context.Background())
	h.life, h.kill = context.WithCancel(context.Background())
	serverOf := func(r *http.Request) *mcp.Server { return requestOf(r.Context()).server }
	identify := auth.RequireBearerToken(func(ctx context.Context, _ string, _ *http.Request) (*auth.TokenInfo, error) {
		one := requestOf(ctx) // httpd has authenticated it
		return &auth.TokenInfo{UserID: one.caller.Org.ID + "/" + one.caller.Principal.ID, Extra: map[string]any{requestName: one}}, nil
	}, &auth.RequireBearerTokenOptions{AllowMissingExpiration: true})
	options := mcp.StreamableHTTPOptions{ // httpd checks host, origin and size
		DisableLocalhostProtection: true, MaxRequestBodyBytes: -1, PropagateRequestCancellation: true,
	}
	h.stateful = identify(mcp.NewStreamableHTTPHandler(serverOf, &options))
	options.Stateless = true
	h.stateless = identify(mcp.NewStreamableHTTPHandler(serverOf, &options))
	h.tasks.Go(h.sweep)
	return h
}

// maxBody is the most bytes of a message: the largest arguments, escaped.
const maxBody = 4 << 20

// Routes returns the routes. The endpoints of a nil Handler must not be called.
func (h *Handler) Routes() []surface.Route {
	posts := surface.Group{
		Errors: Errors(), Roles: surface.ToolCallers, MaxBody: maxBody, ModelAPI: true, CallsModel: true, StaysOpen: true, ChecksOrigin: true,
	}
	streams := posts
	streams.CallsModel = false // a stream that is open for hours takes no place of max_requests
	return []surface.Route{
		posts.Route("POST /mcp", h.post),
		streams.Route("GET /mcp", h.get),
		streams.Route("DELETE /mcp", h.delete),
	}
}

// Sessions returns how many sessions there are.
func (h *Handler) Sessions() int { return h.sessions.size() }

// request is an HTTP request as the SDK passes it to a call.
type request struct {
	caller  caller.Caller
	ctx     context.Context // ends when the client has left
	server  *mcp.Server
	session *session // nil = it has none
}

type requestKey struct{}

// requestName is where the request is in the token of the SDK.
const requestName = "turnpike"

func requestOf(ctx context.Context) *request { return ctx.Value(requestKey{}).(*request) }

// message is what is read of a JSON-RPC message.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
}

// The header fields of the protocol.
const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
)

// The revisions of the protocol, newest first. The first has no sessions.
const sessionless = "2026-07-28"

// unstated is the revision that a request without the header has, by the protocol. Some clients send it.
const unstated = "2025-03-26"

func revisions() []string { return []string{sessionless, "2025-11-25", "2025-06-18"} }

// post answers POST /mcp.
func (h *Handler) post(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	var m message
	switch err := json.Unmarshal(body, &m); {
	case !json.Valid(body):
		return surface.WriteJSON(w, http.StatusBadRequest, rpcErrorOf(nil, jsonrpc.CodeParseError, "the body is not valid JSON", nil))
	case err != nil || m.Version != "2.0":
		return fault.New(fault.Invalid, "invalid_request", "the body is not one JSON-RPC 2.0 message; batches are not supported")
	}
	if asJSON, asStream := accepts(r.Header.Values("Accept")); !asJSON && !asStream || !asStream && m.Method == listen {
		return fault.New(fault.Invalid, "not_acceptable",
			"the header Accept does not allow the answer; send \"Accept: application/json, text/event-stream\"")
	}
	forSDK, err := m.forSDK(body)
	if err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(forSDK)), int64(len(forSDK))
	one := &request{caller: caller}
	switch name := r.Header.Get(sessionHeader); {
	case r.Header.Get(versionHeader) >= sessionless:
		return h.postWithoutSession(w, r, one, m)
	case name != "":
		if one.session, err = h.enter(r, caller, name); err != nil {
			return err
		}
	case m.Method == "initialize":
		one.session = h.newSession(caller, h.newID(caller, body))
		if err := h.sessions.add(one.session); err != nil {
			return err
		}
	default:
		return fault.New(fault.Invalid, "no_session", "the request has no %s header; send initialize first", sessionHeader)
	}
	defer h.left(one.session)
	if m.Method == "notifications/cancelled" {
		h.ring(one.session.org, mark(one.session.id)+"."+markOf(jsonscan.Member(m.Params, "requestId")))
	}
	defer one.session.begin(m.ID)()
	one.server = one.session.server
	return h.serve(w, r, one, m, h.stateful)
}

// listen is the method of a request that is answered with a stream without end.
const listen = "subscriptions/listen"

// postWithoutSession answers a request of a revision that has no sessions.
func (h *Handler) postWithoutSession(w http.ResponseWriter, r *http.Request, one *request, m message) error {
	own := h.newSession(one.caller, "")
	defer own.cancel()
	one.server = own.server
	if m.Method == listen {
		if err := h.sessions.add(own); err != nil {
			return err
		}
		defer h.sessions.remove(own)
		one.session = own
		ctx, cancel := until(r.Context(), h.open)
		defer cancel()
		r = r.WithContext(ctx)
		if err := h.listed(ctx, one); err != nil {
			return err
		}
	}
	return h.serve(w, r, one, m, h.stateless)
}

// get answers GET /mcp: the stream of what the client is told.
func (h *Handler) get(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	ctx, cancel := until(r.Context(), h.open)
	defer cancel()
	r = r.WithContext(ctx)
	s, err := h.enter(r, caller, r.Header.Get(sessionHeader))
	if err != nil {
		return err
	}
	defer h.left(s)
	one := &request{caller: caller, server: s.server, session: s}
	if h.o.Seals != nil && !s.listed() { // another replica may have listed the tools
		if err := h.listed(ctx, one); err != nil {
			return err
		}
	}
	return h.serve(w, r, one, message{}, h.stateful)
}

// delete answers DELETE /mcp, which ends a session.
func (h *Handler) delete(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
	name := r.Header.Get(sessionHeader)
	s, err := h.enter(r, caller, name)
	if err != nil {
		return err
	}
	h.sessions.remove(s)
	s.end()
	h.forget(mark(name))
	h.ring(s.org, mark(name))
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func unknownSession() error {
	return fault.New(fault.NotFound, "session_not_found", "the key has no session with the id of the header %s; it may have ended; send initialize without the header", sessionHeader)
}

// serve lets the SDK answer a request. m is the message of a POST.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, one *request, m message, sdk http.Handler) error {
	one.ctx = r.Context()
	if r.Header.Get(versionHeader) == unstated { // in a session, its revision counts
		r.Header.Del(versionHeader)
	}
	answer := &rpcWriter{ResponseWriter: w, m: m}
	if _, asStream := accepts(r.Header.Values("Accept")); asStream || r.Method == http.MethodPost {
		r.Header.Set("Accept", "application/json, text/event-stream") // the SDK wants both, and answers with a stream
		answer.asJSON = !asStream
	}
	sdk.ServeHTTP(answer, r.WithContext(context.WithValue(r.Context(), requestKey{}, one)))
	return answer.end()
}

// left ends a request of a session, and the session if the SDK has ended it.
func (h *Handler) left(s *session) {
	h.sessions.leave(s)
	for range s.server.Sessions() {
		return
	}
	h.sessions.remove(s)
	s.cancel()
}

// newSession returns a session that is not added yet. Cancel or end it.
func (h *Handler) newSession(caller caller.Caller, name string) *session {
	s := &session{id: name, org: caller.Org.ID, principal: caller.Principal.ID}
	s.life, s.cancel = context.WithCancel(h.life)
	s.server = mcp.NewServer(&mcp.Implementation{Name: "turnpike", Version: h.o.Version}, &mcp.ServerOptions{
		Capabilities:              &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}},
		SupportedProtocolVersions: revisions(), GetSessionID: func() string { return name },
		Logger: slog.New(slog.DiscardHandler),
	})
	s.server.AddReceivingMiddleware(h.receive)
	return s
}

// receive answers the messages about tools. The SDK answers the others.
func (h *Handler) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch r := req.(type) {
		case *mcp.ListToolsRequest:
			if r.Params != nil && r.Params.Cursor != "" {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid cursor: the list has one page"}
			}
			result, err := h.list(ctx, from(r.Extra))
			return result, rpcFault(err)
		case *mcp.CallToolRequest:
			result, err := h.call(ctx, from(r.Extra), r.Params)
			return result, rpcFault(err)
		case *mcp.ListPromptsRequest, *mcp.GetPromptRequest, *mcp.ListResourcesRequest, *mcp.ListResourceTemplatesRequest,
			*mcp.ReadResourceRequest, *mcp.SubscribeRequest, *mcp.UnsubscribeRequest, *mcp.CompleteRequest:
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "this server has tools only: it does not support " + method}
		}
		return next(ctx, method, req)
	}
}

func from(extra *mcp.RequestExtra) *request { return extra.TokenInfo.Extra[requestName].(*request) }

// rpcFault returns the error as a JSON-RPC error. An error that is not a [fault.Error] is hidden.
func rpcFault(err error) error {
	if err == nil {
		return nil
	}
	if known, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return known
	}
	if blocked, ok := errors.AsType[*catalog.ServerError](err); ok { // it would name addresses
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf(
			"the outbound policy of the gateway refused an address of the MCP server %q; an owner or admin can correct its URL", blocked.Server)}
	}
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fault.From(err).Message}
}

// until returns a context that also ends with other.
func until(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return ctx, func() { forget(); cancel(nil) }
}

// sweep ends sessions that are idle, or whose key is not valid any more, until the Handler stops.
func (h *Handler) sweep() {
	ticks := time.NewTicker(sweepEvery)
	defer ticks.Stop()
	for {
		select {
		case <-h.open.Done():
			return
		case now := <-ticks.C:
			for _, s := range h.sessions.idle(now) {
				s.end()
			}
			for _, s := range h.sessions.all("") {
				if _, ok := h.o.Orgs.Caller(s.org, s.principal); !ok {
					h.sessions.remove(s)
					s.end()
				}
			}
		}
	}
}

// Close ends streams at once, waits for calls until ctx ends, and ends all sessions. It may be
// called more than once.
func (h *Handler) Close(ctx context.Context) {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.calls.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		h.kill()
		<-done
	}
	for _, s := range h.sessions.all("") {
		h.sessions.remove(s)
		s.end()
	}
	h.kill()
	h.tasks.Wait()
}
