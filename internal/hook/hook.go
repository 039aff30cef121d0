// Package hook sends the questions of runs to http hooks of their orgs.
//
//	rules ─► run/hooks.go ─► Sender.Ask ─► egress ─► POST {event, tool_name, data, output}
//	                              ◄──────────────── {action: allow | deny | modify, …}
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
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/id"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
)

const (
	// DefaultTimeout bounds a request, including the answer.
	DefaultTimeout = 5 * time.Second
	// MaxAnswer is how large an answer may be, in bytes.
	MaxAnswer = 2 << 20
)

// Options are what a Sender needs. All are required, except Now.
type Options struct {
	Client *http.Client // a guarded client of package egress: orgs name the targets

	// Hook returns a hook of the org of a key as its settings are now, or false if there is none.
	Hook func(orgID, key, hookID string) (org.Hook, bool)
	// Secret returns a secret of the org's vault.
	Secret func(ctx context.Context, orgID, name string) (secret.Value, error)

	Now func() time.Time // nil = time.Now
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
	h, ok := s.o.Hook(q.Org, q.Principal, q.Hook.ID)
	if !ok || h.Disabled || h.Config.URL == "" {
		return run.HookAnswer{}, errors.New("the hook is not configured any more")
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(h.Config.Timeout, DefaultTimeout))
	defer cancel()
	req, err := s.request(ctx, h, q)
	if err != nil {
		return run.HookAnswer{}, err
	}
	resp, err := s.o.Client.Do(req)
	if err != nil {
		return run.HookAnswer{}, fmt.Errorf("the request failed: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return run.HookAnswer{}, fmt.Errorf("it answered with the status %d, want 200", resp.StatusCode)
	}
	return read(resp.Body, q)
}

// request returns the signed request.
func (s *Sender) request(ctx context.Context, h org.Hook, q run.HookQuestion) (*http.Request, error) {
	out := question{Event: event(q.Hook.Point), ToolName: q.Tool, Data: q.Data, Output: q.Output}
	if h.Config.Context {
		out.Run = &runContext{q.RunID, q.Model, q.Principal, q.Surface, string(q.Key)}
	}
	body, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("the request cannot be written: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.Config.URL, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("its URL cannot be used")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "turnpike-hooks")
	if h.Config.Secret == "" {
		return req, nil
	}
	ref, err := secret.ParseRef(h.Config.Secret)
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
	return req, webhook.Sign(req.Header, id.New("msg_"), s.o.Now(), body, key)
}

// event returns the name of a point, as settings have it.
func event(p loop.HookPoint) string {
	switch p {
	case loop.OnRunStart:
		return "OnRunStart"
	case loop.PreToolUse:
		return "PreToolUse"
	case loop.PostToolUse:
		return "PostToolUse"
	case loop.OnDelegation:
		return "OnDelegation"
	case loop.PreResponse:
		return "PreResponse"
	}
	return string(p)
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
