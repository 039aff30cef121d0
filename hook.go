package turnpike

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/run"
)

// Hooks are functions of the program that decide at points of a run. Each may be nil. They may be called
// at the same time, for several calls and several runs.
//
// A hook must return when its context ends: with the run, or after Timeout. A hook that returns an error, panics
// or is late has failed. Hooks fail closed: a call is not executed, a result is withheld, and an answer is denied. Agent.Log
// has the line hook_failed with the error. The model does not get the error, unless it is a [*DenyError].
//
// With a Store, what a hook has decided is stored, and it is not asked again after a restart. It is asked again if
// the process dies before the decision is stored. A run has the hooks that its agent had when
// the run began. If [Agent.Resume] is called on an agent that lacks one of them, it counts as failed.
type Hooks struct {
	// PreTool is called before a tool call is executed, and before its approval is asked for. It returns the
	// arguments for the call; nil = those that it got. New arguments are validated like those of the model. If it
	// returns an error, the call is not executed and the model is told that it was blocked.
	PreTool func(ctx context.Context, c HookCall) (arguments json.RawMessage, err error)

	// PostTool is called after a tool call, also after one that has failed, with its result as text. It is not
	// called for a call whose outcome is unknown: that has no result. It returns the result that the model gets and
	// that is stored: another text replaces all of the result, images included. "" is a text like others. If it
	// returns an error, the model is told that the result is withheld. The effect of the call stays.
	PostTool func(ctx context.Context, c HookCall, result string) (string, error)

	// PreAnswer is called with the final text of a run before anything of it is told. It returns the text in its place:
	// the result, the stream, and the next run of the [Session] have that one. "" is a text like others. A text that
	// is replaced has no reasoning and no citations. If it returns an error, the run ends with an
	// [*HookError]. With PreAnswer, a stream has the text of a run only after the hook has decided, and nothing that the
	// model writes beside tool calls.
	PreAnswer func(ctx context.Context, r HookRun, answer string) (string, error)

	// Timeout is how long one call of a hook may take; 0 = 5 seconds.
	Timeout time.Duration
}

// HookRun is the run that a hook decides about.
type HookRun struct {
	RunID   string
	Session string // that the run is part of; "" = none
	Caller  Caller // of the run
}

// HookCall is a tool call that a hook decides about.
type HookCall struct {
	HookRun
	Tool string // as the model called it

	// Arguments are a JSON object. PreTool gets those of the model, which are valid for the tool. PostTool gets those
	// with which the call was executed.
	Arguments json.RawMessage
}

// DenyError is the error that a hook returns to deny, with a reason for the model or the program. Other errors of hooks deny too; their
// text is only logged.
type DenyError struct{ Message string }

func (e *DenyError) Error() string { return cmp.Or(e.Message, "denied") }

// hookTimeout is the default of Hooks.Timeout: that of http hooks of the gateway.
const hookTimeout = 5 * time.Second

// The ids of the hooks in stored runs.
const (
	preTool   = "pre_tool"
	postTool  = "post_tool"
	preAnswer = "pre_answer"
)

// check returns what is wrong with the hooks.
func (h *Hooks) check() error {
	if h.Timeout < 0 {
		return invalid("Agent.Hooks.Timeout is %v; use 0 or more", h.Timeout)
	}
	return nil
}

// policy returns the hooks of a new run.
func (h *Hooks) policy() (out []loop.Hook) {
	add := func(there bool, id string, p loop.HookPoint) {
		if there {
			out = append(out, loop.Hook{ID: id, Point: p, Type: loop.HookFunction, DenyOnError: true})
		}
	}
	add(h.PreTool != nil, preTool, loop.PreToolUse)
	add(h.PostTool != nil, postTool, loop.PostToolUse)
	add(h.PreAnswer != nil, preAnswer, loop.PreResponse)
	return out
}

// asker implements run.Hooks: it asks the hooks of the agent.
type asker struct{ *engine }

// Ask implements run.Hooks.
func (a asker) Ask(ctx context.Context, q run.HookQuestion) (run.HookAnswer, error) {
	h := &a.agent.Hooks
	c := HookCall{HookRun{RunID: q.RunID, Caller: Caller{ID: q.Principal}}, q.Tool, bytes.Clone(q.Data)}
	a.mu.Lock()
	if of := a.calls[q.RunID]; of != nil {
		c.Session, c.Caller = of.session, of.caller
	}
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(h.Timeout, hookTimeout))
	defer cancel()
	var out run.HookAnswer
	var err error
	switch {
	case q.Hook.ID == preTool && h.PreTool != nil:
		out, err = h.beforeTool(ctx, c)
	case q.Hook.ID == postTool && h.PostTool != nil && q.Output != nil:
		out, err = h.afterTool(ctx, c, *q.Output)
	case q.Hook.ID == preAnswer && h.PreAnswer != nil && q.Output != nil:
		out, err = h.beforeAnswer(ctx, c.HookRun, *q.Output)
	default:
		err = fmt.Errorf("the agent has no hook %s, and it had one when the run began", q.Hook.ID)
	}
	return out, cmp.Or(err, ctx.Err()) // an answer after the deadline does not count
}

func (h *Hooks) beforeTool(ctx context.Context, c HookCall) (run.HookAnswer, error) {
	arguments, err := h.PreTool(ctx, c)
	if denied, ok := errors.AsType[*DenyError](err); ok {
		return run.HookAnswer{Verdict: loop.HookDeny, Message: denied.Error()}, nil
	}
	if err != nil || arguments == nil {
		return run.HookAnswer{}, err
	}
	return run.HookAnswer{Verdict: loop.HookModify, Arguments: arguments}, nil
}

func (h *Hooks) afterTool(ctx context.Context, c HookCall, result string) (run.HookAnswer, error) {
	text, err := h.PostTool(ctx, c, result)
	if denied, ok := errors.AsType[*DenyError](err); ok {
		text, err = "Error: the result is withheld: "+denied.Error(), nil
	}
	if err != nil || text == result {
		return run.HookAnswer{}, err
	}
	return run.HookAnswer{Verdict: loop.HookModify, Output: &text}, nil
}

func (h *Hooks) beforeAnswer(ctx context.Context, r HookRun, answer string) (run.HookAnswer, error) {
	text, err := h.PreAnswer(ctx, r, answer)
	if denied, ok := errors.AsType[*DenyError](err); ok {
		return run.HookAnswer{Verdict: loop.HookDeny, Message: denied.Error()}, nil
	}
	if err != nil || text == answer {
		return run.HookAnswer{}, err
	}
	return run.HookAnswer{Verdict: loop.HookModify, Output: &text}, nil
}
