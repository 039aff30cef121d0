package eventlog

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// ending returns the last event of the run.
func (p *fold) ending(body loop.Finished, at int64) event.Finished {
	cause := p.state.Cause()
	end := event.Finished{
		Reason: body.Reason, At: time.UnixMilli(at).UTC(),
		Usage: p.state.Usage, Rounds: p.state.Counts.Rounds, ToolCalls: p.state.Counts.Calls,
		Cost: paid(&p.state), SideEffects: p.state.SideEffects, GaveUp: cause.Exhausted, Failure: p.failure(cause, body),
	}
	if limit := p.state.LimitReached(body.Reason); limit != body.Reason {
		end.Limit = limit
	}
	if body.Reason == event.NoProgress {
		end.Repeated = p.state.Repeated()
	}
	for _, h := range body.HandedOver {
		c, _ := p.state.Call(h.Key)
		end.Calls = append(end.Calls, event.ClientCall{ID: h.ID, Name: c.Name, Arguments: p.rawArguments(c)})
	}
	return end
}

// failure returns what went wrong, in words that are safe to show; nil for reasons that are
// not failures.
func (p *fold) failure(cause loop.Cause, end loop.Finished) *event.Failure {
	f := &event.Failure{Code: cause.Code(end.Reason)}
	if f.Code == "" {
		return nil
	}
	switch end.Reason {
	case event.Invalid:
		f.Message = invalidMessage(cause)
	case event.ModelError:
		p.describeModelError(f, cause)
	case event.TooLong:
		f.Message, f.Upstream = tooLongMessage(&p.state, cause, p.failed), p.failed
	case event.Blocked:
		b := p.state.Blocked
		f.Message, f.Address, f.Server, f.URL, f.Setting = "ssrf_blocked:"+b.Reason, b.Address, loop.LabelOf(b.Server), b.URL, b.Setting
		if b.Server == "" && p.failed != nil {
			f.Param = p.failed.Param
		}
	case event.HookDenied:
		f.Message = "a hook of the org has refused the request"
		if why := cause.Hook.Message; why != "" {
			f.Message += ": " + why
		}
	case event.ServerUnavailable:
		f.Message = missingServer(cause)
	case event.ToolAbort:
		f.Message = p.failedTool(cause)
	case event.Memory:
		f.Message = cause.Detail
	case event.BudgetExceeded:
		f.Message, f.RetryAt = budgetMessage(&p.state)
	case event.Lost:
		f.Message = cmp.Or(FatalCall(&p.state, cause), "the gateway was stopped while the run was under way, and the run could not be continued")
	case event.Cancelled, event.CallerGone:
		f.Message = "the run was cancelled"
		if why := journal.GoneWords(cause.Gone); why != "" {
			f.Message += ": " + why
		}
	}
	return f
}

// tooLongMessage says that the prompt is too long, and what is in it.
func tooLongMessage(s *loop.State, cause loop.Cause, failed *model.Error) string {
	if len(cause.Largest) == 0 {
		return modelMessage(cause.Provider, failed)
	}
	var parts []string
	for _, share := range cause.Largest {
		parts = append(parts, fmt.Sprintf("%s (about %d tokens)", share.Name, share.Tokens))
	}
	return fmt.Sprintf("the prompt of about %d tokens is too long for the context window of the model, and could not be made shorter; its largest parts: %s",
		s.PromptTokens(), strings.Join(parts, ", "))
}

// describeModelError completes the failure of a run whose model call failed.
func (p *fold) describeModelError(f *event.Failure, cause loop.Cause) {
	failed := p.reported()
	switch {
	case failed == nil: // the journal is damaged
		f.Message = modelMessage(cause.Provider, nil)
	case cause.Credential:
		f.Message = fmt.Sprintf("The provider %s refuses the gateway's credential (status %d). The operator sets it with api_key of the provider",
			cause.Provider, failed.Status)
	case cause.Param != "":
		f.Message, f.Param = failed.Message, cause.Param
	default:
		f.Message, f.Upstream = modelMessage(cause.Provider, failed), failed
	}
}

// reported returns the failed model call that a caller is told of: that of the first target.
func (p *fold) reported() *model.Error {
	if p.state.Attempt.First != nil && p.first != nil {
		return p.first
	}
	return p.failed
}

func invalidMessage(cause loop.Cause) string {
	if c := cause.Conflict; c != nil && c.Server == org.BuiltinTools {
		return fmt.Sprintf("your tool %q conflicts with an internal tool of the gateway: rename yours", c.Tool)
	}
	if c := cause.Conflict; c != nil {
		return fmt.Sprintf("your tool %q conflicts with the tool of that name of the gateway's MCP server %q: rename yours", c.Tool, loop.LabelOf(c.Server))
	}
	return fmt.Sprintf("tool_choice requires a call of %s, but neither the request nor the gateway has such a tool", cause.MissingTool)
}

// modelMessage says what the provider called name did.
func modelMessage(name string, f *model.Error) string {
	provider := "The provider " + name
	switch {
	case f == nil:
		return "the model call failed"
	case f.Status == 0 && f.Message == "":
		return provider + " could not be reached or broke off its answer. Retry later; if it happens again, the operator checks base_url of the provider"
	case f.Status == 0:
		return provider + ": " + f.Message
	case f.Status >= 400 && f.Message == "":
		return fmt.Sprintf("%s answered %d without an error message", provider, f.Status)
	case f.Status >= 400:
		return fmt.Sprintf("%s answered %d: %s", provider, f.Status, f.Message)
	case f.Body != nil:
		return provider + " reported an error in its answer: " + f.Message
	case f.Message == "":
		return provider + " gave an answer that cannot be read"
	}
	return provider + " " + f.Message
}

func missingServer(cause loop.Cause) string {
	if cause.Server == "" {
		return "a required MCP server is not available"
	}
	return fmt.Sprintf("the required MCP server %q is not available; \"turnpike mcp check\" shows the cause", cause.Server)
}

func (p *fold) failedTool(cause loop.Cause) string {
	c, _ := p.state.Call(cause.Call)
	result, err := p.content.itemsOf(c.ResultRef)
	if err != nil || len(result) == 0 {
		return "a tool failed"
	}
	return fmt.Sprintf("tool %s failed: %s", c.Name, item.PlainText(result[0].Parts))
}

// FatalCall names the tool call during which too many owners of the run died; "" if there
// is none.
func FatalCall(s *loop.State, cause loop.Cause) string {
	c, ok := s.Call(cause.Call)
	if !ok {
		return ""
	}
	return fmt.Sprintf("the gateway died %d times while the call %s of the tool %q was under way; it is not made again", c.DeadOwners, c.Key, c.Name)
}

// storedFailure is a failed model call as it is stored.
type storedFailure struct {
	Class   model.ErrorClass    `json:"class"`
	Status  int                 `json:"status,omitempty"`
	Header  map[string][]string `json:"header,omitempty"`
	Body    []byte              `json:"body,omitempty"`
	Dialect string              `json:"dialect,omitempty"` // of Body
	Code    string              `json:"code,omitempty"`
	Message string              `json:"message,omitempty"`
	Param   string              `json:"param,omitempty"`
	Error   string              `json:"error"` // for people

	Credential bool `json:"credential,omitempty"` // the provider refuses ours
}

func newStoredFailure(e *model.Error) storedFailure {
	return storedFailure{e.Class, e.Status, e.Header, e.Body, e.Dialect, e.Code, e.Message, e.Param, e.Error(), refusesCredential(e)}
}

// recallFailure reads the row of a failed model call.
func recallFailure(ref string, row json.RawMessage) (*model.Error, error) {
	var f storedFailure
	if err := json.Unmarshal(row, &f); err != nil {
		return nil, journal.Damaged(ref, err)
	}
	return f.error(), nil
}

func (f storedFailure) error() *model.Error {
	return &model.Error{Class: f.Class, Status: f.Status, Header: f.Header, Body: f.Body, Dialect: f.Dialect, Code: f.Code, Message: f.Message, Param: f.Param, Credential: f.Credential}
}

// ModelFailure is a failed model call, for people.
type ModelFailure struct {
	Message string // what the provider did, and its own words where it gave any
	Cause   string // why there is no answer; "" where the provider answered
	Body    []byte // of the provider's error answer; nil where it gave none
}

// ModelFailureOf returns how the model call failed that the fact is about. The zero
// ModelFailure: the journal does not have it.
func ModelFailureOf(s *journal.Story, provider string, b loop.TurnFailed) ModelFailure {
	var f storedFailure
	if json.Unmarshal(s.Rows[b.ErrorRef], &f) != nil {
		return ModelFailure{}
	}
	out := ModelFailure{Message: modelMessage(provider, f.error()), Body: f.Body}
	if f.Status == 0 {
		out.Cause = strings.TrimPrefix(f.Error, "provider call: ")
	}
	return out
}

// refusesCredential reports whether the provider refuses the gateway's credential. A model that
// is no adapter of the gateway may say so by the status only.
func refusesCredential(e *model.Error) bool {
	return e.Credential || e.Status == http.StatusUnauthorized
}

// replayEnd emits the end of a run that was given up because of its journal, and
// reports whether it was.
func (p *fold) replayEnd(story *journal.Story) bool {
	if len(story.Facts) == 0 {
		return false
	}
	last := story.Facts[len(story.Facts)-1]
	end, _ := last.Body.(loop.Finished)
	if end.Code != loop.CodeJournalRefused {
		return false
	}
	p.state = loop.Abandon(story.Facts, story.Last())
	p.emit(event.Position{Seq: last.Seq}, p.ending(end, last.At))
	return true
}

// budgetMessage says which budget had no room for the first model call of the run, and when it
// begins anew; the zero time = never.
func budgetMessage(s *loop.State) (message string, at time.Time) {
	r := s.Refused
	if r == nil {
		limit := "max_run_cost_usd"
		if s.Limits.NanoUSD != nil {
			limit = fmt.Sprintf("%v USD (max_run_cost_usd)", money.Nano(*s.Limits.NanoUSD))
		}
		message = "the first model call of the run may cost more than the limit of the run, " + limit
		return message + "; send less, lower its output limit, or raise the limit", time.Time{}
	}
	message = fmt.Sprintf("the budget %s has no room for this model call, which may cost %s: of %s, %s are spent or reserved",
		r.Scope, amount(r.Amount, r.Limit), amount(r.Limit, r.Limit), amount(r.Used, r.Limit))
	if r.EndsAt == 0 {
		return message + "; lower max_tokens, or raise the budget", time.Time{}
	}
	at = time.UnixMilli(r.EndsAt).UTC()
	return message + "; lower max_tokens, or wait: it begins anew at " + at.Format(time.RFC3339), at
}

// amount writes the fields of an amount that are limited.
func amount(a, limit budget.Amount) string {
	switch usd, tokens := money.Nano(a.NanoUSD), count(a.Tokens, "token"); {
	case limit.Tokens == 0:
		return fmt.Sprintf("%v USD", usd)
	case limit.NanoUSD == 0:
		return tokens
	default:
		return fmt.Sprintf("%v USD and %s", usd, tokens)
	}
}
