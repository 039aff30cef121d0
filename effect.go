package turnpike

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// effectsFor is how long the result of an effect is kept under its key.
const effectsFor = 30 * 24 * time.Hour

// effectPoll is how often a call looks whether another one with its key has ended.
const effectPoll = 50 * time.Millisecond

// effectCall is the call that has, or may have, an effect.
type effectCall struct {
	Call string `json:"call"`

	// By is who has said that the call was not carried out, or that it was; "" = nobody.
	By string `json:"by,omitempty"`
}

// once executes a call, unless one with the same key has succeeded: then the result is that one's. It waits
// for a call with the same key that is under way. A call of a run that has ended without an outcome is
// made again, with the same idempotency key.
func (g gated) once(ctx context.Context, c tool.Call) (tool.Result, error) {
	k, ok := g.Tool.(tool.Keyer)
	if !ok {
		return g.Tool.Call(ctx, c)
	}
	name := k.EffectKey(c.Arguments)
	if name == "" {
		return g.Tool.Call(ctx, c)
	}
	e := effect{g.engine, effectID(name), c}
	defer g.engine.flies(c.RunID, c.Key)() // before others can read that it has begun
	mine, result, err := e.begin(ctx)
	if err != nil || result != nil {
		if result == nil {
			result = &tool.Result{}
		}
		return *result, err
	}
	r, err := g.Tool.Call(ctx, c)
	if err != nil { // nobody knows
		return r, err
	}
	return r, e.end(ctx, mine, r)
}

// effectID returns the key of an effect in the store.
func effectID(name string) journal.ConversationKey {
	const most = 200
	if len(name) > most {
		sum := sha256.Sum256([]byte(name))
		name = hex.EncodeToString(sum[:])
	}
	return journal.ConversationKey{Kind: journal.EffectKey, ID: name}
}

// effect is the effect of a call.
type effect struct {
	engine *engine
	key    journal.ConversationKey
	call   tool.Call
}

// begin returns the version of what says that the call is under way, or the result of another one.
func (e effect) begin(ctx context.Context) (version int64, known *tool.Result, err error) {
	for {
		found, err := e.engine.effects.Find(ctx, orgID, "", e.key)
		if err != nil {
			return 0, nil, e.unsent(err)
		}
		var version int64
		if found != nil {
			if len(found.Items) > 0 {
				return 0, e.reused(found), nil
			}
			free, err := e.isFree(ctx, found)
			if err != nil {
				return 0, nil, e.unsent(err)
			}
			if !free {
				if err := e.wait(ctx); err != nil {
					return 0, nil, err
				}
				continue
			}
			version = found.Version
		}
		err = e.save(ctx, version, nil)
		switch {
		case err == nil:
			return version + 1, nil, nil
		case errors.Is(err, org.ErrExists), errors.Is(err, journal.ErrChanged): // somebody else was faster
		default:
			return 0, nil, e.unsent(err)
		}
	}
}

// reused returns the result of an effect that was had.
func (e effect) reused(found *journal.Conversation) *tool.Result {
	it := found.Items[0]
	r := &tool.Result{Parts: it.Parts, Structured: it.Structured}
	var of effectCall
	if json.Unmarshal(found.RequestJSON, &of) != nil || found.RunID != e.call.RunID || of.Call != e.call.Key {
		r.Value = toolexec.Reused{} // of another call, whose run has paid for it
	}
	return r
}

// isFree reports whether the call that is noted as under way is this one, or is made by nobody any more. The
// error says that a crash has broken its run off, which must be resumed first.
func (e effect) isFree(ctx context.Context, found *journal.Conversation) (bool, error) {
	var of effectCall
	if err := json.Unmarshal(found.RequestJSON, &of); err != nil {
		return false, err
	}
	if of.By != "" { // a person has said that it was not carried out
		return true, nil
	}
	if found.RunID == e.call.RunID {
		return of.Call == e.call.Key || !e.engine.isFlying(found.RunID, of.Call), nil
	}
	if e.engine.hasLanded(found.RunID, of.Call) {
		return true, nil
	}
	head, err := e.engine.archive.Head(ctx, orgID, found.RunID)
	switch {
	case errors.Is(err, org.ErrNotFound):
		return true, nil
	case err != nil:
		return false, err
	case head.Summary.Status == journal.Running && head.LeaseUntil == 0:
		return false, fmt.Errorf("run %s had begun the same effect when its process died; resume that run first", found.RunID)
	}
	return head.Summary.Status == journal.Done, nil
}

// flies notes that a call with an effect is under way, until landed is called.
func (e *engine) flies(run, call string) (landed func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.flying[run+"/"+call] = true
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.flying, run+"/"+call)
	}
}

func (e *engine) isFlying(run, call string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.flying[run+"/"+call]
}

// hasLanded reports whether a call of a run that is performed here is not under way any more.
func (e *engine) hasLanded(run, call string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.calls[run] != nil && !e.flying[run+"/"+call]
}

// wait waits a little.
func (e effect) wait(ctx context.Context) error {
	timer := time.NewTimer(effectPoll)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return e.unsent(context.Cause(ctx))
	}
}

func (e effect) unsent(err error) error {
	return fmt.Errorf("%w: effect %s: %w", tool.ErrNotSent, e.key.ID, err)
}

// end keeps the result of a call that has succeeded. One that has failed had no effect.
func (e effect) end(ctx context.Context, version int64, r tool.Result) error {
	ctx = context.WithoutCancel(ctx)
	if r.IsError {
		_, err := e.engine.effects.Delete(ctx, orgID, "", e.key)
		return err
	}
	return e.save(ctx, version, item.List{{Kind: item.ToolResult, CallID: e.call.Key, Parts: r.Parts, Structured: r.Structured}})
}

func (e effect) save(ctx context.Context, version int64, items item.List) error {
	echo, err := json.Marshal(effectCall{Call: e.call.Key})
	if err != nil {
		return err
	}
	c := journal.Conversation{Version: version, RunID: e.call.RunID, Items: items, RequestJSON: echo}
	return e.engine.effects.Save(ctx, orgID, "", c, effectsFor, e.key)
}
