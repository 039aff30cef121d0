package chat

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/jsonlimit"
	"github.com/turnpike-gateway/turnpike/internal/ledger"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/provider/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/sse"
)

// MaxBody is the most bytes of a request body: enough for long conversations with
// images. The HTTP server enforces it.
const MaxBody = 10 << 20

// Runner performs runs. Implemented by *run.Runner.
type Runner interface {
	Run(ctx context.Context, req *run.Request, sink run.Sink) error
}

// Options are what a Handler needs; all are required.
type Options struct {
	// MaxRoundsCap is the operator's cap on the rounds of a run, whatever an
	// org has stored.
	MaxRoundsCap int

	Runner     Runner
	Router     *route.Router
	Models     *route.Listing
	Catalog    *catalog.Catalog
	Heartbeats *sse.Heartbeats
	Log        *slog.Logger
}

// Handler answers POST /v1/chat/completions.
type Handler struct{ o Options }

// New returns a Handler.
func New(o Options) *Handler { return &Handler{o} }

// Serve answers one request of an authenticated caller.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, caller run.Caller) {
	if err := h.serve(w, r, caller); err != nil {
		h.logInternal(err)
		WriteError(w, err)
	}
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request, caller run.Caller) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	members, err := scan(caller.Account, body)
	if err != nil {
		return err
	}
	name, err := modelName(members)
	if err != nil {
		return err
	}
	targets, err := h.targets(name)
	if err != nil {
		return err
	}
	req := &run.Request{
		Org: caller.Org.ID, Principal: caller.Principal.ID, Surface: "chat",
		Model: name, Targets: targets, Dialect: Dialect, Account: caller.Account,
	}
	if !caller.LoopActive() || optedOut(r.Header) {
		return h.relay(w, r, caller.RequestID, req, body, members)
	}
	if err := jsonlimit.Check(body); err != nil {
		return fault.New(fault.Invalid, "json_too_complex", "the request body %v", err)
	}
	if req.Key, err = submitKey(r.Header, caller.Principal.ID, body); err != nil {
		return err
	}
	return h.loop(w, r, req, members, caller)
}

// loop runs the agent loop and answers in the form that was asked for.
func (h *Handler) loop(w http.ResponseWriter, r *http.Request, req *run.Request, members []member, caller run.Caller) error {
	if err := caller.Account.Charge(decodedBytes(members)); err != nil {
		return err
	}
	asked, err := decode(req, members)
	if err != nil {
		return err
	}
	if err := nameDropped(w, asked.dropped, caller.Org.Runtime.DroppedParams); err != nil {
		return err
	}
	applyRuntime(req, caller, h.o.MaxRoundsCap)
	mode := caller.Org.Runtime.StreamMode
	if !asked.stream || mode == org.Disabled {
		return h.answerJSON(w, r, req, caller)
	}
	req.Live = mode != org.FinalOnly
	req.Attach = true
	return h.answerStream(w, r, req, caller, asked)
}

// decodedBytes is about how much memory decoding the body takes: its text again,
// and a few structures for each object in it.
func decodedBytes(members []member) int {
	n := 0
	for _, m := range members {
		n += len(m.value) + objectBytes*bytes.Count(m.value, []byte("{"))
	}
	return n
}

// objectBytes is what an object of a body takes when it is decoded: an item with
// its parts, say.
const objectBytes = 512

// nameDropped says which members of the request are left out, or refuses them.
func nameDropped(w http.ResponseWriter, dropped []string, mode string) error {
	if len(dropped) == 0 {
		return nil
	}
	names := strings.Join(dropped, ",")
	if mode == "refuse" {
		return fault.New(fault.Invalid, "unsupported_parameter", "the agent loop cannot carry %s; leave it out, or switch the loop off "+
			"for this request with the header turnpike-mcp-disabled: true", names).In(dropped[0])
	}
	w.Header().Set("Turnpike-Dropped-Params", names)
	return nil
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

// readBody reads the whole body into a buffer that grows with what arrives. The
// server charges the capacity of the buffer to the caller's account.
func readBody(r *http.Request) ([]byte, error) {
	return ledger.ReadAll(r.Body, min(r.ContentLength, MaxBody), nil)
}

// modelName returns the last "model" of the body.
func modelName(members []member) (string, error) {
	var name string
	found := false
	for _, m := range members {
		if m.name != "model" {
			continue
		}
		found = true
		if err := json.Unmarshal(m.value, &name); err != nil {
			return "", fault.New(fault.Invalid, "invalid_type", "model is not a string").In("model")
		}
	}
	if !found || name == "" {
		return "", fault.New(fault.Invalid, "missing_required_parameter", "the request names no model").In("model")
	}
	return name, nil
}

func (h *Handler) targets(name string) ([]run.Target, error) {
	resolved := h.o.Router.Resolve(name)
	if resolved == nil {
		return nil, fault.New(fault.NotFound, "model_not_found", "no provider serves the model %q; %s", name, h.hints()).In("model")
	}
	targets := make([]run.Target, len(resolved))
	for i, t := range resolved {
		targets[i] = run.Target{Provider: t.Provider, Name: t.Name, Model: t.Model}
	}
	return targets, nil
}

func (h *Handler) hints() string {
	hints := h.o.Router.Hints()
	const most = 20
	more := ""
	if len(hints) > most {
		hints, more = hints[:most], ", …"
	}
	return "known are: " + strings.Join(hints, ", ") + more
}

func (h *Handler) logInternal(err error) {
	if fault.From(err).Code == fault.Internal {
		h.o.Log.Error("request failed", "error", err)
	}
}
