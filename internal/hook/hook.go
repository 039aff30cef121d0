// Package hook sends the questions of runs to http hooks of their orgs.
//
//	rules ─► run/hooks.go ─► Sender.Ask ─► egress ─► POST {event, tool_name, data, output}
//	                              ◄──────────────── {action: allow | deny | modify, …}
//	outbox.Hooks ────────► Sender.Tell ─► egress ─► POST {event: OnRunComplete, data, output}, after the run
//
// A request is signed like a webhook, and is sent once. Whatever is not a valid answer is an error: the
// hook's on_error then says what happens.
package hook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
	"github.com/turnpike-gateway/turnpike/item"
)

const (
	// DefaultTimeout bounds a request, including the answer.
	DefaultTimeout = 5 * time.Second
	// MaxAnswer is how large an answer may be, in bytes.
	MaxAnswer = 2 << 20
)

// Options are what a Sender needs. All are required, except Now and Secrets; Rows is for Tell.
type Options struct {
	Client *http.Client // a guarded client of package egress: orgs name the targets

	// Target returns where the hook of a question is sent to, as its settings are now. The error wraps
	// [org.ErrNotFound] if the hook is not configured any more.
	Target func(ctx context.Context, q run.HookQuestion) (Target, error)
	// Secret returns a secret of the org's vault.
	Secret func(ctx context.Context, orgID, name string) (secret.Value, error)
	// Secrets resolves the references of the configuration file, which may be to variables and files.
	Secrets *secret.Resolver

	// Rows reads the answers of runs, for Tell, and Memory counts them.
	Rows   func(ctx context.Context, orgID, runID string, refs []string, limit int) ([]json.RawMessage, error)
	Memory *memlimit.Limiter

	Now func() time.Time // nil = time.Now
}

// Target is where an http hook is sent to.
type Target struct {
	URL     string
	Headers map[string]string // a value may end in a reference
	Secret  string            // a reference to the vault; "" = requests are not signed
	Timeout time.Duration     // 0 = DefaultTimeout
	Context bool              // requests name the run

	FromFile bool // the configuration file declares it: its headers may refer to variables and files
}

// TargetOf returns the target of a hook of an org.
func TargetOf(h org.Hook) Target {
	return Target{URL: h.Config.URL, Secret: h.Config.Secret, Timeout: h.Config.Timeout, Context: h.Config.Context}
}

// Sender asks http hooks. It is safe for concurrent use.
type Sender struct{ o Options }

// New returns a Sender.
func New(o Options) *Sender {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Sender{o}
}

// question is what is sent.
type question struct {
	Event    string          `json:"event"`
	ToolName string          `json:"tool_name,omitempty"`
	Data     json.RawMessage `json:"data"`
	Output   *string         `json:"output,omitempty"`
	Label    item.Label      `json:"label,omitempty"`
	Run      *runContext     `json:"run,omitempty"`
}

// runContext names the run, for hooks with include_run_context.
type runContext struct {
	ID       string `json:"execution_id"`
	Model    string `json:"model"`
	Key      string `json:"key"`
	Surface  string `json:"surface"`
	ToolCall string `json:"tool_call,omitempty"`
}

// answer is what comes back. Unknown members are ignored.
type answer struct {
	Action         string          `json:"action"`
	Message        string          `json:"message"`
	ModifiedInput  json.RawMessage `json:"modified_input"`
	ModifiedOutput json.RawMessage `json:"modified_output"`
}

// Ask implements run.Hooks. The error does not contain what the hook has answered.
func (s *Sender) Ask(ctx context.Context, q run.HookQuestion) (run.HookAnswer, error) {
	t, err := s.o.Target(ctx, q)
	switch {
	case errors.Is(err, org.ErrNotFound) || err == nil && t.URL == "":
		return run.HookAnswer{}, errors.New("the hook is not configured any more")
	case err != nil:
		return run.HookAnswer{}, fmt.Errorf("its settings cannot be read: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(t.Timeout, DefaultTimeout))
	defer cancel()
	resp, err := s.send(ctx, t, q, id.New("msg_"))
	if err != nil {
		return run.HookAnswer{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return run.HookAnswer{}, fmt.Errorf("it answered with the status %d, want 200", resp.StatusCode)
	}
	return read(resp.Body, q)
}

// maxIgnored is how much is read of an answer that nobody needs, so that the connection can be used again.
const maxIgnored = 16 << 10

// Tell implements outbox.Teller. The content of the answer is ignored.
func (s *Sender) Tell(ctx context.Context, m journal.HookMessage) error {
	account := s.o.Memory.Open(m.Org)
	defer account.Close()
	q := run.HookQuestion{
		Org: m.Org, Principal: m.Principal, RunID: m.RunID, Model: m.Model, Surface: m.Surface,
		Hook: loop.Hook{ID: m.Hook, Agent: m.Agent, Point: loop.OnRunComplete, Type: loop.HookHTTP},
	}
	t, err := s.o.Target(ctx, q)
	if err == nil && t.URL == "" {
		err = org.ErrNotFound
	}
	if err == nil {
		q.Output, err = s.answerOf(ctx, m, account)
	}
	if err != nil && !errors.Is(err, org.ErrNotFound) && !errors.Is(err, errDamaged) {
		err = fmt.Errorf("%w: %w", journal.ErrNotSent, err)
	}
	if err != nil {
		return err
	}
	data := map[string]string{"model": m.Model}
	if q.Output != nil {
		data["output"] = *q.Output
	}
	if q.Data, err = json.Marshal(data); err != nil {
		return fmt.Errorf("the request cannot be written: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(t.Timeout, DefaultTimeout))
	defer cancel()
	resp, err := s.send(ctx, t, q, m.ID)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxIgnored)
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("it answered with the status %d, want 200", resp.StatusCode)
	}
	return nil
}

// errDamaged reports an answer that is stored and cannot be read.
var errDamaged = errors.New("the answer of the run cannot be read")

// answerOf returns the answer of a run, as its hooks have left it; nil = its texts are not stored.
func (s *Sender) answerOf(ctx context.Context, m journal.HookMessage, account *memlimit.Account) (*string, error) {
	if m.AnswerRef == "" {
		return nil, nil
	}
	var rows []json.RawMessage
	if err := journal.ReadBatch(account, func(limit int) (err error) {
		rows, err = s.o.Rows(ctx, m.Org, m.RunID, []string{m.AnswerRef}, limit)
		return err
	}); err != nil {
		return nil, err
	}
	var items item.List
	if len(rows) != 1 || json.Unmarshal(rows[0], &items) != nil {
		return nil, errDamaged
	}
	text := run.AnswerText(items)
	return &text, account.Acquire(3 * len(text)) // with the requests that contain it
}

// send sends a request, and returns the answer.
func (s *Sender) send(ctx context.Context, t Target, q run.HookQuestion, messageID string) (*http.Response, error) {
	req, err := s.request(ctx, t, q, messageID)
	if err != nil {
		return nil, err
	}
	resp, err := s.o.Client.Do(req)
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) { // its URL may be that of a redirect, with what the hook was sent
		err = wrapped.Err
	}
	if err != nil {
		return nil, fmt.Errorf("the request failed: %w", err)
	}
	return resp, nil
}

// request returns the request, signed if the hook has a secret. A hook that is told of its run gets the id of the
// message in any case: it may get the same one again.
func (s *Sender) request(ctx context.Context, t Target, q run.HookQuestion, messageID string) (*http.Request, error) {
	out := question{Event: q.Hook.Point.Event(), ToolName: q.Tool, Data: q.Data, Output: q.Output, Label: q.Label}
	if t.Context {
		out.Run = &runContext{q.RunID, q.Model, q.Principal, q.Surface, string(q.Key)}
	}
	body, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("the request cannot be written: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("its URL cannot be used")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "turnpike-hooks")
	if err := s.addHeaders(ctx, req, t, q.Org); err != nil {
		return nil, err
	}
	if q.Hook.Point == loop.OnRunComplete {
		req.Header.Set(webhook.HeaderID, messageID)
	}
	if t.Secret == "" {
		return req, nil
	}
	ref, err := secret.ParseRef(t.Secret)
	if err != nil {
		return nil, fmt.Errorf("its secret: %w", err)
	}
	name := strings.TrimPrefix(string(ref), string(secret.Vault)+":")
	value, err := s.o.Secret(ctx, q.Org, name)
	if err != nil {
		return nil, fmt.Errorf("its secret %s cannot be read: %w", name, err)
	}
	key, err := webhook.ParseSecret(value)
	if err != nil {
		return nil, fmt.Errorf("its secret %s: %w", name, err)
	}
	return req, webhook.Sign(req.Header, messageID, s.o.Now(), body, key)
}

// addHeaders adds the hook's own headers.
func (s *Sender) addHeaders(ctx context.Context, req *http.Request, t Target, orgID string) error {
	lookup := func(ctx context.Context, name string) (secret.Value, error) { return s.o.Secret(ctx, orgID, name) }
	values := secret.VaultOnly(lookup)
	if t.FromFile && s.o.Secrets != nil {
		values = s.o.Secrets.WithVault(lookup)
	}
	for name, text := range t.Headers {
		parsed, err := secret.Parse(text)
		if err != nil {
			return fmt.Errorf("its header %s: %w", name, err)
		}
		value, err := values.Resolve(ctx, parsed)
		if err != nil {
			return fmt.Errorf("its header %s: %w", name, err)
		}
		req.Header.Set(name, value.Reveal())
	}
	return nil
}

// read reads the answer to q.
func read(body io.Reader, q run.HookQuestion) (run.HookAnswer, error) {
	data, err := io.ReadAll(io.LimitReader(body, MaxAnswer+1))
	if err != nil {
		return run.HookAnswer{}, fmt.Errorf("its answer broke off: %w", err)
	}
	if len(data) > MaxAnswer {
		return run.HookAnswer{}, fmt.Errorf("its answer has more than %d bytes", MaxAnswer)
	}
	if err := q.Memory.Acquire(len(data)); err != nil {
		return run.HookAnswer{}, fmt.Errorf("its answer: %w", err)
	}
	defer q.Memory.Release(len(data)) // the run counts what it keeps of it
	var a answer
	if err := json.Unmarshal(data, &a); err != nil {
		return run.HookAnswer{}, errors.New("its answer is not a JSON object with an action")
	}
	out := run.HookAnswer{Message: a.Message}
	switch a.Action {
	case "allow":
		return out, nil
	case "deny":
		out.Verdict = loop.HookDeny
		return out, nil
	case "modify":
		out.Verdict = loop.HookModify
	default:
		return run.HookAnswer{}, errors.New("its answer has no action that is allow, deny or modify")
	}
	if given(a.ModifiedInput) {
		out.Arguments = a.ModifiedInput
	}
	if given(a.ModifiedOutput) {
		text := string(a.ModifiedOutput)
		if a.ModifiedOutput[0] == '"' {
			if err := json.Unmarshal(a.ModifiedOutput, &text); err != nil {
				return run.HookAnswer{}, errors.New("modified_output of its answer is not valid")
			}
		}
		out.Output = &text
	}
	return out, nil
}

// given reports whether a member is there: "" and {} are values, null is none.
func given(v json.RawMessage) bool { return len(v) > 0 && string(v) != "null" }
