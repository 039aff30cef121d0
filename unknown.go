package turnpike

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/item"
)

// maxUnknown is how many unknown effects are read at a time.
const maxUnknown = 1000

// UnknownEffect is the effect of a tool call with a key (tool.Function.Key) of which nobody knows whether it
// was carried out: its answer was lost.
type UnknownEffect struct {
	Key   string // the name of the tool, a colon, and the key; the SHA-256 of it, in hex, if it has more than 200 bytes
	RunID string // the run that has called the tool last
	Since time.Time

	version int64
	call    string
}

// UnknownEffects yields the effects of which nobody knows whether they were had, by their keys. Calls that are under way are
// not among them. Without a Store they are those of the agent's own memory. The next call with such a key is made again, with
// the same idempotency key, unless [Agent.ResolveEffect] says before that it was carried out. An error is the last pair.
func (a *Agent) UnknownEffects(ctx context.Context) iter.Seq2[UnknownEffect, error] {
	return pages(func(after string) ([]UnknownEffect, string, error) {
		e, err := a.prepare()
		if err != nil {
			return nil, "", err
		}
		found, err := e.effects.UnknownEffects(ctx, orgID, after, maxUnknown)
		if err != nil {
			return nil, "", errorOf(ctx, err, Partial{})
		}
		var out []UnknownEffect
		for _, one := range found {
			unknown, err := e.isUnknown(ctx, one)
			if err != nil {
				return out, "", errorOf(ctx, err, Partial{})
			}
			if unknown != nil {
				out = append(out, *unknown)
			}
		}
		if len(found) < maxUnknown {
			return out, "", nil
		}
		return out, found[len(found)-1].ID, nil
	})
}

// isUnknown returns the effect, or nil if its call is under way or somebody has resolved it.
func (e *engine) isUnknown(ctx context.Context, one journal.UnknownEffect) (*UnknownEffect, error) {
	var of effectCall
	if err := json.Unmarshal(one.RequestJSON, &of); err != nil {
		return nil, fmt.Errorf("effect %s: %w", one.ID, err)
	}
	if of.By != "" || e.isFlying(one.RunID, of.Call) {
		return nil, nil
	}
	if !e.hasLanded(one.RunID, of.Call) {
		head, err := e.archive.Head(ctx, orgID, one.RunID)
		if err != nil && !errors.Is(err, org.ErrNotFound) {
			return nil, err
		}
		if err == nil && head.Summary.Status == journal.Running && head.LeaseUntil > 0 { // by another agent
			return nil, nil
		}
	}
	return &UnknownEffect{
		Key: one.ID, RunID: one.RunID, Since: timeOf(one.SavedAt), version: one.Version, call: of.Call,
	}, nil
}

// Resolution is what a person has found out about an [UnknownEffect].
type Resolution struct {
	CarriedOut bool
	Result     string // of the call, if it was carried out: the next call with the key gets it, as a text
	By         string // who says so, for the store; "" = the program
}

// ResolveEffect records what became of an effect that [Agent.UnknownEffects] has returned. If it was carried out,
// later calls with its key get the result, for 30 days, and so does its own run if it is resumed; if not, the next
// call is made. It can be resolved once: the error is a [*ResumeError] if somebody else has been faster, or
// if the call was made again.
func (a *Agent) ResolveEffect(ctx context.Context, u UnknownEffect, r Resolution) error {
	e, err := a.prepare()
	if err != nil {
		return err
	}
	if u.version == 0 {
		return invalid("the effect %q is not one that UnknownEffects has returned", u.Key)
	}
	if r.By == "" {
		r.By = programID
	}
	note, err := json.Marshal(effectCall{Call: u.call, By: r.By})
	if err != nil {
		return err
	}
	c := journal.Conversation{Version: u.version, RunID: u.RunID, RequestJSON: note}
	if r.CarriedOut {
		c.Items = item.List{item.NewResult(u.call, r.Result, false)}
	}
	err = e.effects.Save(ctx, orgID, "", c, effectsFor, journal.ConversationKey{Kind: journal.EffectKey, ID: u.Key})
	if errors.Is(err, journal.ErrChanged) {
		message := fmt.Sprintf("the effect %s is resolved already, or its call was made again", u.Key)
		return &ResumeError{Message: message, status: http.StatusConflict}
	} else if err != nil {
		return errorOf(ctx, err, Partial{})
	}
	return nil
}
