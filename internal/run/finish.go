package run

import (
	"fmt"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/loop"
)

// finish closes the journal and reports the end. What the caller needs to come
// back is stored before it is told.
func (d *drive) finish(a loop.Finish) error {
	body := loop.Finished{Reason: a.Reason}
	if a.Reason == event.ClientCalls {
		var err error
		if body.Handed, err = d.handOver(); err != nil {
			return err
		}
	}
	if f := d.failure(a.Reason); f != nil {
		body.Code = f.Code
	}
	crash.At("C16")
	if err := d.append(nil, body); err != nil {
		return err
	}
	crash.At("C17")
	d.log.Debug("finished", "reason", a.Reason, "rounds", d.state.Spent.Rounds, "tokens", d.state.Spent.Tokens)
	d.emit(d.ending(body))
	return nil
}

// ending is the event that closes the run.
func (d *drive) ending(body loop.Finished) event.Finished {
	end := event.Finished{
		Reason: body.Reason, Usage: d.state.Usage, Rounds: d.state.Spent.Rounds, SideEffects: d.state.Wrote,
		Failure: d.failure(body.Reason),
	}
	for _, h := range body.Handed {
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
		return &event.Failure{Code: "model_error", Message: d.modelMessage(), Upstream: d.failed}
	case event.TooLong:
		return &event.Failure{Code: "context_length_exceeded", Message: d.modelMessage(), Upstream: d.failed}
	case event.Blocked:
		b := d.state.Blocked
		return &event.Failure{Code: "outbound_ssrf_blocked", Message: "ssrf_blocked:" + b.Reason, Address: b.Address}
	case event.ServerUnavailable:
		return &event.Failure{Code: "server_unavailable", Message: d.missingServers()}
	case event.ToolAbort:
		return &event.Failure{Code: "tool_failed", Message: d.failedTool()}
	case event.Lost:
		return &event.Failure{Code: "run_lost", Message: "the gateway was stopped while the run was under way, and the run could not be continued"}
	case event.Cancelled, event.CallerGone:
		return &event.Failure{Code: string(reason), Message: "the run was cancelled"}
	}
	return nil
}

func (d *drive) modelMessage() string {
	switch {
	case d.failed == nil:
		return "the model call failed"
	case d.failed.Message != "":
		return d.failed.Message
	case d.failed.Status != 0:
		return fmt.Sprintf("the provider answered %d without saying more", d.failed.Status)
	}
	return "the provider could not be reached or broke off its answer"
}

func (d *drive) missingServers() string {
	for _, s := range d.state.Catalogued.Servers {
		if s.Required && s.Error != "" {
			return fmt.Sprintf("the required MCP server %q is not available", s.Label)
		}
	}
	return "a required MCP server is not available"
}

func (d *drive) failedTool() string {
	for _, c := range d.state.Calls {
		if c.Attempt > 0 && (c.Outcome == loop.Error || c.Outcome == loop.Unknown) {
			return fmt.Sprintf("tool %s failed: %s", c.Name, d.items[c.ResultRef][0].Text())
		}
	}
	return "a tool failed"
}
