package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/item"
)

// Hooks asks the hooks of a run that this package cannot decide by itself: those of the types
// loop.HookHTTP and loop.HookFunction. Implemented by *hook.Sender and by the library.
type Hooks interface {
	// Ask returns what the hook decides. It must return when ctx ends. After an error the
	// hook's settings say what happens.
	Ask(ctx context.Context, q HookQuestion) (HookAnswer, error)
}

// HookQuestion is what a hook decides about.
type HookQuestion struct {
	Org, Principal, RunID, Model, Surface string

	Hook loop.Hook
	Key  loop.CallKey // of the call; "" = it is not about a call
	Tool string       // as the model called it; "" as well

	// Data is a JSON object: the arguments of the call, as the hooks before have left them; at the
	// start of a run its input, and before the response the answer.
	Data json.RawMessage

	// Label is where the content of Output comes from, after a call; "" = the tool has not said.
	Label item.Label

	// Output is the result of the call, or the answer of the run; nil = there is none yet.
	Output *string

	Memory *memlimit.Account // charged with what is read of the answer
}

// HookAnswer is what a hook decides. The zero value allows.
type HookAnswer struct {
	Verdict loop.HookVerdict // "" = loop.HookAllow
	Message string           // why it denies, or asks

	// Of loop.HookModify: what is put in place. Arguments are those of a call; Output is a result, or
	// the answer. nil = it is not changed.
	Arguments json.RawMessage
	Output    *string
}

// maxHookMessage is how much of the message of a hook is kept, in bytes.
const maxHookMessage = 1_000

// hookCaller asks the hooks of a run. ask may be called from the goroutine of a tool call.
type hookCaller struct {
	run      *runState
	hooks    Hooks // nil = there are none of other types
	observer *runObserver
}

// ask asks one hook. Of an answer that the point does not have, or an error, the verdict is what the
// settings of the hook say. The error is that of ctx: the hook has then decided nothing.
func (h *hookCaller) ask(ctx context.Context, q HookQuestion) (loop.HookRan, HookAnswer, error) {
	ran := loop.HookRan{Point: q.Hook.Point, Hook: q.Hook.ID, Key: q.Key, Verdict: loop.HookAllow}
	if q.Hook.Type == loop.HookRules || q.Hook.Type == loop.HookApproval {
		ran.Verdict, ran.Message, ran.Failed = q.Hook.Judge(q.Data)
		h.report(ctx, ran, q, nil)
		return ran, HookAnswer{}, nil
	}
	begin := time.Now()
	a, err := h.outside(ctx, q)
	crash.At(crash.AfterHookAnswer)
	ran.Micros = max(1, time.Since(begin).Microseconds())
	if ctx.Err() != nil {
		return ran, a, ctx.Err()
	}
	if err == nil {
		ran.Verdict, err = effective(q, &a)
	}
	ran.Message = cut(a.Message)
	if err != nil {
		ran.Verdict, ran.Failed, ran.Message, ran.TimedOut = q.Hook.OnError(), true, "", errors.Is(err, context.DeadlineExceeded)
		if ran.Verdict != loop.HookAllow { // the cause may have addresses, and is only logged
			ran.Message = "a check that is required has failed"
			withheld := "Error: the result is withheld: " + ran.Message
			a = HookAnswer{Output: &withheld}
		}
	}
	h.report(ctx, ran, q, err)
	return ran, a, nil
}

// outside asks a hook outside this package. A panic becomes an error.
func (h *hookCaller) outside(ctx context.Context, q HookQuestion) (a HookAnswer, err error) {
	if h.hooks == nil {
		return a, errors.New("hooks of this type are not available")
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return h.hooks.Ask(crash.OnSent(ctx, crash.AfterHookSend), q)
}

// effective returns the verdict that an answer has at its point: nothing is denied after a tool.
func effective(q HookQuestion, a *HookAnswer) (loop.HookVerdict, error) {
	v, p := cmp.Or(a.Verdict, loop.HookAllow), q.Hook.Point
	switch {
	case v == loop.HookDeny && p == loop.PostToolUse:
		return loop.HookAllow, nil
	case v == loop.HookModify && (p == loop.PreToolUse || p == loop.OnDelegation) && a.Arguments == nil,
		v == loop.HookModify && (p == loop.PostToolUse || p == loop.PreResponse) && a.Output == nil:
		return v, errors.New("it modifies, and does not say to what")
	case !v.KnownAt(p):
		return v, fmt.Errorf("it answers %q, which is not possible there", v)
	}
	return v, nil
}

func cut(text string) string {
	if len(text) > maxHookMessage {
		return strings.ToValidUTF8(text[:maxHookMessage], "")
	}
	return text
}

// report logs what a hook has decided, unless it simply allows.
func (h *hookCaller) report(ctx context.Context, ran loop.HookRan, q HookQuestion, err error) {
	h.observer.hookRan(ctx, q.Hook.Type, ran)
	log := h.run.log.With("hook", ran.Hook, "point", ran.Point, "type", q.Hook.Type, "verdict", ran.Verdict)
	if ran.Key != "" {
		log = log.With("call", ran.Key, "tool", q.Tool)
	}
	switch {
	case ran.Failed:
		log.Warn("hook_failed", "error", err)
	case ran.Verdict != loop.HookAllow:
		log.Info("hook_ran")
	default:
		log.Debug("hook_ran")
	}
}

// question returns the question to a hook of the run, without its subject. Only the goroutine of the run may call it.
func (h *hookCaller) question(hook loop.Hook) HookQuestion {
	a := h.run.state().Accepted
	return HookQuestion{Org: a.Org, Principal: a.Principal, RunID: a.RunID, Model: a.Model, Surface: a.Surface, Hook: hook, Memory: h.run.account}
}

// pending are facts and rows that are appended together.
type pending struct {
	rows   []journal.Row
	bodies []loop.Body
}

// flush appends them. If the run ends meanwhile, the rules decide again.
func (p *pending) flush(run *runState) error {
	if len(p.bodies) == 0 {
		return nil
	}
	err := run.append(p.rows, p.bodies...)
	*p = pending{}
	if err == nil && run.state().Ended != "" {
		return errDecideAgain
	}
	return err
}

// before runs the hooks before a call that is prepared as p, and returns it as they leave it. What
// they decide is added to batch; before a hook is asked that has effects outside, everything before
// it is appended.
func (t *toolCaller) before(p toolexec.Prepared, c loop.Call, batch *pending) (toolexec.Prepared, error) {
	if p.Verdict != loop.Run && p.Verdict != loop.Ask {
		return p, nil
	}
	due := t.run.state().HooksDue(loop.PreToolUse, c.Key)
	if len(due) == 0 && len(c.Hooks) == 0 {
		return p, nil
	}
	ran := c.Hooks // those of an owner before this one
	if ref := c.PatchOf(); ref != "" {
		p = t.replaced(p, c, t.run.events.Patch(ref))
	}
	for _, h := range due {
		if p.Verdict == loop.Answer { // the changed arguments are not valid
			break
		}
		if h.Type == loop.HookHTTP || h.Type == loop.HookFunction {
			if err := batch.flush(t.run); err != nil {
				return p, err
			}
		}
		q := t.hooks.question(h)
		q.Key, q.Tool, q.Data = c.Key, c.Name, p.Arguments
		one, answer, err := t.hooks.ask(t.run.ctx, q)
		if err != nil {
			return p, errDecideAgain // the run's context has ended
		}
		if one.Verdict == loop.HookModify {
			one.PatchRef = fmt.Sprintf("hook:%s.%d", c.Key, len(ran))
			p = t.replaced(p, c, answer.Arguments)
			batch.rows = append(batch.rows, journal.Row{Ref: one.PatchRef, Value: t.run.events.KeepPatch(one.PatchRef, storable(answer.Arguments))})
		}
		batch.bodies = append(batch.bodies, one)
		ran = append(ran[:len(ran):len(ran)], one)
		if one.Verdict == loop.HookDeny { // no hook is due after it
			break
		}
	}
	return judged(p, ran), nil
}

// storable returns arguments as they are stored, also if they are not JSON.
func storable(arguments json.RawMessage) json.RawMessage {
	if json.Valid(arguments) {
		return arguments
	}
	text, _ := json.Marshal(string(arguments))
	return text
}

// replaced returns the call with the arguments of a hook, which are checked like those of a model.
func (t *toolCaller) replaced(p toolexec.Prepared, c loop.Call, arguments json.RawMessage) toolexec.Prepared {
	next := toolexec.Prepare(t.tools.visible(), t.rules(), c.Key, c.Name, string(arguments))
	if next.Verdict == loop.Answer {
		next.Answer = toolexec.Refusal("not run: a hook has changed the arguments, and the changed ones are not valid: " + next.Answer)
	}
	next.Revision = p.Revision
	return next
}

// judged returns the call as the verdicts say.
func judged(p toolexec.Prepared, ran []loop.HookRan) toolexec.Prepared {
	for _, r := range ran {
		switch {
		case r.Verdict == loop.HookDeny:
			p.Verdict, p.Answer, p.Asker = loop.Answer, "Error: Blocked by hook — "+cmp.Or(r.Message, r.Hook), ""
			return p
		case r.Verdict == loop.HookAsk && p.Verdict == loop.Run:
			p.Verdict, p.Asker = loop.Ask, loop.AskedByHook
		}
	}
	return p
}

// effectiveArguments returns the arguments of a call as its hooks have left them, otherwise as the
// model wrote them.
func (t *toolCaller) effectiveArguments(c loop.Call) string {
	if ref := c.PatchOf(); ref != "" {
		return string(t.run.events.Patch(ref))
	}
	return t.run.events.RawArguments(c)
}

// hooked is what the hooks after a call have decided.
type hooked struct {
	base HookQuestion // of each of them
	due  []loop.Hook
	ran  []loop.HookRan
}

// after runs the hooks after a call in the goroutine of the call, and returns its result as they leave it. A call whose context
// ends before they have decided has no result.
func (h *hookCaller) after(ctx context.Context, hooks *hooked, c loop.Call, arguments json.RawMessage, done toolexec.Done, limit toolexec.Cap) (toolexec.Done, error) {
	if done.Outcome != loop.OK && done.Outcome != loop.Error {
		return done, nil
	}
	for _, hook := range hooks.due {
		text := item.PlainText(done.Whole())
		q := hooks.base
		q.Hook, q.Key, q.Tool, q.Data, q.Output, q.Label = hook, c.Key, c.Name, arguments, &text, done.Label
		ran, answer, err := h.ask(ctx, q)
		if err != nil {
			return done, err
		}
		if ran.Verdict == loop.HookModify {
			ran.PatchRef = resultOf(c.Key)
			done = done.Replaced(*answer.Output, limit)
		}
		hooks.ran = append(hooks.ran, ran)
	}
	return done, nil
}

// runHooks runs the hooks of a point that is not about a call.
func (h *hookCaller) runHooks(a loop.RunHooks) error {
	for _, hook := range a.Hooks {
		q := h.question(hook)
		data := map[string]string{"model": q.Model}
		if a.Point == loop.PreResponse {
			text := AnswerText(h.run.events.Items(h.run.state().AnswerRef()))
			data["output"], q.Output = text, &text
			if h.run.state().Untrusted {
				data["label"] = string(item.Untrusted)
			}
		} else {
			data["input"] = h.inputText()
		}
		var err error
		if q.Data, err = json.Marshal(data); err != nil {
			return fmt.Errorf("run %s: hook %s: %w", h.run.lease.RunID, hook.ID, err)
		}
		ran, answer, err := h.ask(h.run.ctx, q)
		if err != nil {
			return errDecideAgain // the run's context has ended
		}
		var rows []journal.Row
		if a.Point == loop.PreResponse {
			rows = h.replaceAnswer(&ran, answer)
		}
		err = h.run.append(rows, ran)
		crash.At(crash.AfterHookRan)
		if err != nil || ran.Verdict == loop.HookDeny || h.run.state().Ended != "" {
			return err
		}
	}
	return nil
}

// replaceAnswer sets what the hook puts in place of the answer, and returns the row of it; nil = nothing.
func (h *hookCaller) replaceAnswer(ran *loop.HookRan, answer HookAnswer) []journal.Row {
	var text string
	switch ran.Verdict {
	case loop.HookModify:
		text = *answer.Output
	case loop.HookDeny:
		text = "[Response blocked: " + cmp.Or(ran.Message, ran.Hook) + "]"
	default:
		return nil
	}
	ran.PatchRef = h.run.state().AnswerPatch()
	message := item.Item{Kind: item.Message, Role: item.Assistant, Parts: []item.Part{{Kind: item.Text, Text: text}}}
	for _, it := range h.run.events.Items(h.run.state().AnswerRef()) {
		message.Turn = max(message.Turn, it.Turn)
		if it.Kind == item.Message {
			message.Phase = it.Phase
		}
	}
	return h.run.events.Store(ran.PatchRef, []item.Item{message})
}

// AnswerText returns the text of an answer, with what the model says in place of one that it refuses.
func AnswerText(items []item.Item) string {
	var b strings.Builder
	for _, it := range items {
		if it.Kind != item.Message {
			continue
		}
		for _, part := range it.Parts {
			if part.Kind == item.Text || part.Kind == item.Refusal {
				b.WriteString(part.Text)
			}
		}
	}
	return b.String()
}

// inputText returns the texts of what the caller has sent for this run, a line each.
func (h *hookCaller) inputText() string {
	items := h.run.events.Items("input")
	var texts []string
	for _, it := range items[min(h.run.start.notOwn, len(items)):] {
		if text := item.PlainText(it.Parts); text != "" {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "\n")
}
