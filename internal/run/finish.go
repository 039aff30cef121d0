package run

import (
	"fmt"
	"net/http"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/model"
)

// finish closes the journal and reports the end. What the caller needs to come
// back is stored before it is told.
func (d *drive) finish(a loop.Finish) error {
	body := loop.Finished{Reason: a.Reason}
	if a.Reason == event.ClientCalls {
		var err error
		if body.HandedOver, err = d.handOver(); err != nil {
			return err
		}
	}
	if f := d.failure(a.Reason); f != nil {
		body.Code = f.Code
	}
	switch {
	case d.givenUp != nil:
		body.Code, body.Detail = codeRefused, d.givenUp.Error()
	case a.Reason == event.Lost:
		body.Detail = d.deadly()
	}
	crash.At(crash.BeforeFinish)
	if err := d.append(nil, body); err != nil {
		return err
	}
	crash.At(crash.AfterFinish)
	d.log.Debug("finished", "reason", a.Reason, "rounds", d.state.Spent.Rounds, "tokens", d.state.Spent.Tokens)
	d.emit(d.ending(body))
	return nil
}

// ending is the event that closes the run.
func (d *drive) ending(body loop.Finished) event.Finished {
	end := event.Finished{
		Reason: body.Reason, Usage: d.state.Usage, Rounds: d.state.Spent.Rounds, SideEffects: d.state.SideEffects,
		GaveUp: body.Reason == event.ModelError && d.state.RetriesExhausted(), Failure: d.failure(body.Reason),
	}
	for _, h := range body.HandedOver {
		c, _ := d.state.Call(h.Key)
		end.Calls = append(end.Calls, event.ClientCall{ID: h.ID, Name: c.Name, Arguments: d.rawArguments(c)})
	}
	return end
}

// failure says what went wrong in words that are safe to show; nil for reasons
// that are no failures.
func (d *drive) failure(reason event.Reason) *event.Failure {
	switch reason {
	case event.Invalid:
		c := d.state.Catalogued.Conflict
		if c == nil {
			return &event.Failure{Code: "tool_choice_unavailable", Message: fmt.Sprintf(
				"tool_choice demands %s, and neither the request nor the gateway has it", d.state.Catalogued.Missing)}
		}
		return &event.Failure{Code: "tool_name_conflict", Message: fmt.Sprintf(
			"your tool %q conflicts with the tool of that name of the gateway's MCP server %q: rename yours", c.Tool, c.Server)}
	case event.ModelError:
		if d.state.Grade != loop.Relay && d.refusedCredential() {
			return &event.Failure{Code: "upstream_credential_refused", Message: fmt.Sprintf(
				"The provider %s refuses the gateway's credential (status %d). The operator sets it with api_key of the provider",
				d.provider(), d.failed.Status)}
		}
		return &event.Failure{Code: "model_error", Message: d.modelMessage(), Upstream: d.failed}
	case event.TooLong:
		return &event.Failure{Code: "context_length_exceeded", Message: d.modelMessage(), Upstream: d.failed}
	case event.Blocked:
		b := d.state.Blocked
		return &event.Failure{Code: "outbound_ssrf_blocked", Message: "ssrf_blocked:" + b.Reason, Address: b.Address, Server: b.Server, URL: b.URL, Setting: b.Setting}
	case event.ServerUnavailable:
		return &event.Failure{Code: "server_unavailable", Message: d.missingServers()}
	case event.ToolAbort:
		return &event.Failure{Code: "tool_failed", Message: d.failedTool()}
	case event.Memory:
		return d.overdraft()
	case event.Lost:
		if why := d.deadly(); why != "" {
			return &event.Failure{Code: "run_lost", Message: why}
		}
		return &event.Failure{Code: "run_lost", Message: "the gateway was stopped while the run was under way, and the run could not be continued"}
	case event.Cancelled, event.CallerGone:
		return &event.Failure{Code: string(reason), Message: "the run was cancelled"}
	}
	return nil
}

// overdraft says which bound the run has met. Only the process that met it knows
// more than that it was one.
func (d *drive) overdraft() *event.Failure {
	if d.overdrawn == nil {
		return &event.Failure{Code: "run_memory_exceeded", Message: "the run needed more memory than the gateway may retain for it"}
	}
	f := fault.From(d.overdrawn)
	return &event.Failure{Code: f.Reason, Message: f.Message}
}

// provider names the provider of the last model call, as the journal has it.
func (d *drive) provider() string {
	if i := d.state.Attempt.Target; i < len(d.state.Accepted.Targets) {
		return d.state.Accepted.Targets[i].Provider
	}
	return ""
}

// modelMessage says what the provider did, and names it.
func (d *drive) modelMessage() string { return modelMessage(d.provider(), d.failed) }

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

// refusedCredential reports whether the provider refuses the gateway's credential. A
// journal of release 0.1 has the status only.
func (d *drive) refusedCredential() bool {
	return d.failed != nil && (d.failed.Credential || d.failed.Status == http.StatusUnauthorized)
}

func (d *drive) missingServers() string {
	for _, s := range d.state.Catalogued.Servers {
		if s.Required && s.Error != "" {
			return fmt.Sprintf("the required MCP server %q is not available; \"turnpike mcp check\" shows the cause", s.Label)
		}
	}
	return "a required MCP server is not available"
}

func (d *drive) failedTool() string {
	for _, c := range d.state.Calls {
		if c.Failed() && len(d.items[c.ResultRef]) > 0 {
			return fmt.Sprintf("tool %s failed: %s", c.Name, d.items[c.ResultRef][0].Text())
		}
	}
	return "a tool failed"
}
