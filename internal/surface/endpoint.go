package surface

import (
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/relay"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/settings"
	"github.com/turnpike-gateway/turnpike/internal/spool"
	"github.com/turnpike-gateway/turnpike/model"
)

// Relayed is an endpoint of the OpenAI API whose requests are passed on unchanged, but for the
// name of the model, to a provider that has it.
type Relayed struct {
	// Path is the endpoint below the base URL of the API, such as /embeddings. It is stored with
	// requests and must never change.
	Path string

	// Form says that a body may be a form (multipart/form-data). JSON is accepted in any case.
	Form bool

	// Tells says that the answer is text: where it does not say how many tokens it has, its size
	// tells. Otherwise such a request is settled with all that was reserved for it.
	Tells bool

	// NoOutput says that the answer has no output tokens.
	NoOutput bool
}

// Relay returns the endpoint. Bodies are kept in the spool while a request is served.
func Relay(o Options, s *spool.Spool, x Relayed) Endpoint {
	h := New(o, Surface{Name: strings.TrimPrefix(x.Path, "/"), Dialect: model.DialectEndpoints, RelayPath: x.Path, Errors: EndpointErrors()})
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		body := s.Body(caller.Org.ID, caller.Account)
		defer func() {
			if err := body.Close(); err != nil {
				o.Log.Warn("a request body was not removed", "error", err)
			}
		}()
		err := h.relayEndpoint(w, r, caller, x, body)
		h.logInternal(err)
		return err
	}
}

// EndpointErrors returns the error format of relayed endpoints.
func EndpointErrors() *Errors { return OpenAIErrors(model.DialectEndpoints) }

func (h *Handler) relayEndpoint(w http.ResponseWriter, r *http.Request, caller caller.Caller, x Relayed, body *spool.Body) error {
	sent, err := readRelayed(r, x, body)
	if err == nil {
		err = ChargeDecoded(caller.Account, sent.members)
	}
	if err != nil {
		return err
	}
	req, err := h.relayRequest(caller, x, sent.members)
	if err != nil {
		return err
	}
	if _, err := h.s.extensionsOf(r.Header, nil, true, false); err != nil {
		return err
	}
	asked := settings.Request{MaxTokens: maxTokens(sent.members, sent.prompts)}
	if x.NoOutput {
		asked.MaxTokens = 1 // 0 = not known
	}
	if err := h.setPolicy(r.Header, req, caller, asked); err != nil {
		return err
	}
	if err := sent.checkNames(req.Targets); err != nil {
		return err
	}
	req.Relay.Content, req.Relay.PromptBytes = sent.named, sent.promptBytes
	req.Relay.Raw = &relay.Request{Dialect: h.s.Dialect, Path: h.s.RelayPath, Header: forwarded(r.Header), Untold: !x.Tells}
	return h.runRelay(w, r, req)
}

// relayRequest returns the request of a relay, of which only the members are known that the gateway
// reads.
func (h *Handler) relayRequest(caller caller.Caller, x Relayed, members []Member) (*run.Request, error) {
	name, err := modelName(members)
	if err != nil {
		return nil, err
	}
	targets, err := h.targets(caller, name)
	if err != nil {
		return nil, err
	}
	if targets, err = h.having(x.Path, targets); err != nil {
		return nil, err
	}
	if !h.o.Router.FallsBack(name) { // the caller retries by itself
		targets = targets[:1]
	}
	user := EndUser(members)
	if caller.Principal.Access.EndUsers && user == "" {
		return nil, noEndUser()
	}
	return &run.Request{
		Who: run.Who{
			Org: caller.Org.ID, Principal: caller.Principal.ID, Surface: h.s.Name, ID: caller.RequestID, EndUser: user, Account: caller.Account,
		},
		Input: run.Input{Conversation: run.Conversation{Dialect: h.s.Dialect}, Model: name, Targets: targets},
		Relay: &run.Relay{Reason: run.RelayEndpoint},
	}, nil
}

// having returns the targets whose provider has the endpoint.
func (h *Handler) having(endpoint string, targets []route.Target) ([]route.Target, error) {
	able := slices.DeleteFunc(slices.Clone(targets), func(t route.Target) bool { return !t.Relays(h.s.Dialect) })
	if len(able) > 0 {
		return able, nil
	}
	advice := "no provider of the gateway has it: it needs one of the kind openai or openai-responses"
	if names := h.o.Router.Relaying(h.s.Dialect); len(names) > 0 {
		advice = "use a model of a provider that has it: " + strings.Join(names, ", ")
	}
	return nil, fault.New(fault.Invalid, "endpoint_not_supported", "the provider %s has no endpoint /v1%s; %s", targets[0].Provider, endpoint, advice).In("model")
}

// relayedMembers are the members of bodies, and the fields of forms, that the gateway reads.
func relayedMembers() []string {
	return []string{"model", "user", "safety_identifier", "metadata", "n", "best_of", "max_tokens"}
}

// relayedBody is what the gateway reads of a body.
type relayedBody struct {
	body     *spool.Body
	members  []Member
	models   []spool.Cut // where the body names the model, without a text
	boundary string      // of a form; "" = the body is JSON

	promptBytes int64 // see run.Request
	prompts     int64 // each is answered by itself; 0 = one
}

// readRelayed reads the body of a request into the spool.
func readRelayed(r *http.Request, x Relayed, body *spool.Body) (*relayedBody, error) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch form := err == nil && kind == "multipart/form-data"; {
	case form && !x.Form:
		return nil, fault.New(fault.MediaType, "unsupported_media_type", "/v1%s takes JSON, not a form; send the header \"Content-Type: application/json\"", x.Path).In("Content-Type")
	case form:
		return readForm(r.Body, params["boundary"], body)
	}
	from, err := skipMark(r.Body)
	if err != nil {
		return nil, err
	}
	return readJSON(from, body)
}

// maxRelayedMember is how many bytes of a member the gateway reads. One that is longer is not one of
// relayedMembers, or not a useful one.
const maxRelayedMember = 8 << 10

// readJSON reads a body that is JSON.
func readJSON(from io.Reader, body *spool.Body) (*relayedBody, error) {
	out := &relayedBody{body: body}
	err := jsonscan.ObjectFrom(io.TeeReader(from, body), maxRelayedMember, func(name string, value []byte, at, end int64) error {
		if err := checkName("", name, relayedMembers()); err != nil {
			return err
		}
		if name == "prompt" {
			out.prompts = max(out.prompts, countPrompts(body.Reader(), at, end))
		}
		switch {
		case !slices.Contains(relayedMembers(), name):
			return nil
		case value == nil && name == "metadata":
			return nil
		case value == nil:
			return InvalidValue(name, "%s has %d bytes, and at most %d are allowed", name, end-at, maxRelayedMember)
		case len(out.members) == maxRepeated:
			return InvalidValue(name, "%s is repeated too often", name)
		case name == "model":
			out.models = append(out.models, spool.Cut{From: at, To: end})
		}
		out.members = append(out.members, Member{Name: name, Value: slices.Clone(value)})
		return nil
	})
	out.promptBytes = body.Len()
	return out, brokenJSON(err)
}

// countPrompts returns how many prompts a member has, which stands at these bytes of the body: a list of texts, or of
// lists of tokens, is one of several.
func countPrompts(body io.ReadSeeker, at, end int64) (n int64) {
	if _, err := body.Seek(at, io.SeekStart); err != nil {
		return 0
	}
	depth, tokens := 0, json.NewDecoder(io.LimitReader(body, end-at))
	for {
		token, err := tokens.Token()
		delim, _ := token.(json.Delim)
		_, text := token.(string)
		switch {
		case err != nil:
			return max(n, 1)
		case delim == ']' || delim == '}':
			depth--
		case depth == 1 && (text || delim != 0):
			n++
		}
		if delim == '[' || delim == '{' {
			depth++
		}
	}
}

// maxRepeated is how many members of relayedMembers a body may have, repeated ones included.
const maxRepeated = 64

// checkNames refuses a form that cannot have the name that a target has for the model.
func (b *relayedBody) checkNames(targets []route.Target) error {
	if b.boundary == "" {
		return nil
	}
	for _, t := range targets {
		if strings.Contains(t.Model, b.boundary) || strings.ContainsFunc(t.Model, func(c rune) bool { return c < ' ' }) {
			return InvalidValue("model", "the name of the model must not have control characters or the boundary of the form")
		}
	}
	return nil
}

// named returns the body with a target's name for the model: see [run.Request].Content.
func (b *relayedBody) named(name string) (open func() io.ReadCloser, length int64) {
	text := []byte(name)
	if b.boundary == "" {
		text = jsonscan.AppendString(nil, name)
	}
	cuts := make([]spool.Cut, len(b.models))
	for i, c := range b.models {
		cuts[i] = spool.Cut{From: c.From, To: c.To, Text: text}
	}
	return b.body.With(cuts...)
}
