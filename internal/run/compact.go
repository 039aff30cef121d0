package run

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/crash"
	"github.com/turnpike-gateway/turnpike/internal/eventlog"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/window"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// compactor makes prompts of a run shorter.
type compactor struct {
	run      *runState
	tools    *toolSet
	observer *runObserver
	reserver *reserver
	models   Models // nil = the run's own model writes summaries
}

// largestParts is how many parts of a prompt are named that could not be made shorter.
const largestParts = 3

// cutSummary follows a summary that the limit on output has cut off.
const cutSummary = "\n[The summary was cut off here.]"

// sealSummarizer sets the target that writes summaries, if the settings of the run name a model. A model that
// is not configured any more is replaced by the run's own.
func (d *driver) sealSummarizer(body *loop.Accepted) {
	name := body.Context.SummaryModel
	if name == "" || body.Context.Mode != loop.ContextAuto || d.o.Models == nil {
		return
	}
	found := d.o.Models.Resolve(name)
	if len(found) == 0 {
		d.run.log.Warn("the model that writes summaries is not configured: the run's own model writes them", "model", name)
		return
	}
	sealed := found[0].Target
	if d.o.Price != nil {
		sealed.Price = d.o.Price(sealed)
	}
	body.Summarizer = &sealed
}

// summary is what a model has written.
type summary struct {
	text    string
	usage   model.Usage
	refused bool // the call was not made, or its provider has refused it: it costs nothing

	uncounted bool // see [loop.Turn]
}

// errNoSummary says that the model has answered without a text.
var errNoSummary = errors.New("the model has answered without a text")

// compact makes the prompt of the next model call shorter, and appends what came of it.
func (c *compactor) compact(a loop.Compact) error {
	s := c.run.state()
	settings := s.CompactSettings(a)
	parts := s.SeenParts()
	p := window.Prompt{Items: c.run.files().Shown(c.run.events.Transcript(s.Seen())), Tokens: a.Tokens, Cached: s.CountedTokens}
	if s.Catalogued != nil {
		p.Overhead = s.Catalogued.Bytes
	}
	plan := window.Plan(p, settings)
	body := loop.Compacted{Target: a.Target, Before: plan.Before, After: plan.Before}
	var written summary
	if plan.Summarises() {
		var err error
		if written, err = c.summarize(a, p, settings, plan); err != nil {
			return c.compactionFailed(body, written, err)
		}
		body.Usage, body.Uncounted = written.usage, written.uncounted
		plan = plan.WithSummary(written.text, c.summaryTokens(written))
	}
	ref := fmt.Sprintf("compacted:%d", a.Number)
	until, view := c.replacement(parts, plan)
	if !plan.Changes() || !window.Effective(plan.Before, plan.After) || until == 0 {
		body.Largest = window.Largest(p, largestParts)
		return c.compacted(a, body, nil)
	}
	body.Until, body.Refs, body.After, body.Summarized = until, []string{ref}, plan.After, plan.Summarises()
	body.Bytes = window.Bytes(window.View(p.Items, plan)) + p.Overhead
	cost := money.Nano(s.Cost(loop.Compacted{Target: a.Target, Usage: written.usage, Refused: written.usage == (model.Usage{}), Uncounted: written.uncounted}).NanoUSD)
	body.NetNano = int64(plan.NetCost(settings.Price, p.Cached, cost))
	room := c.run.account.Share()
	defer room.Close()
	if err := room.Acquire(eventlog.HeldBytes(view)); err != nil {
		return c.compactionFailed(loop.Compacted{Target: a.Target, Before: plan.Before, After: plan.Before}, written, err)
	}
	room.Close() // Store counts it
	crash.At(crash.BeforeCompacted)
	return c.compacted(a, body, c.run.events.Store(ref, view))
}

// compacted appends what came of a compaction, and tells of it.
func (c *compactor) compacted(a loop.Compact, body loop.Compacted, rows []journal.Row) error {
	if err := c.run.commit(journal.Batch{Rows: rows, Settled: c.reserver.settled(body)}, body); err != nil {
		return err
	}
	c.observer.compacted(body)
	log := c.run.log.With("before", body.Before, "after", body.After, "threshold", a.Limit)
	switch {
	case body.Failed:
	case len(body.Refs) == 0:
		log.Warn("the prompt could not be made shorter", "largest", body.Largest)
	default:
		log.Info("compacted", "summarized", body.Summarized, "net_nano_usd", body.NetNano)
	}
	return nil
}

// compactionFailed appends that a compaction has failed, with what it has cost. The run goes on with the prompt as it is.
func (c *compactor) compactionFailed(body loop.Compacted, written summary, err error) error {
	switch {
	case c.run.abandoned():
		return errHandOver
	case errors.Is(err, errDecideAgain), errors.As(err, new(*stopsRun)):
		return err
	}
	c.run.log.Warn("the compaction of a prompt has failed", "error", err)
	body.Failed, body.Refused, body.Usage, body.Uncounted = true, written.refused, written.usage, written.uncounted
	return c.compacted(loop.Compact{}, body, nil)
}

// stopsRun is an error after which the run does not go on here.
type stopsRun struct{ error }

func (e *stopsRun) Unwrap() error { return e.error }

// replacement returns what the model sees instead of the rows up to the last one that the plan changes, and the Until of the
// fact; 0 = the plan changes nothing that can be replaced.
func (c *compactor) replacement(parts []loop.SeenPart, plan window.Compaction) (until int, view []item.Item) {
	changed := plan.Until // the items before it are changed
	if n := len(plan.Results); n > 0 {
		changed = max(changed, plan.Results[n-1]+1)
	}
	if changed == 0 {
		return 0, nil
	}
	var items []item.Item
	for _, part := range parts {
		if len(items) >= changed && until > 0 {
			break
		}
		items = append(items, c.run.events.Items(part.Ref)...)
		until = part.Until
	}
	return until, window.View(items, plan)
}

// compaction returns what the model sees of the conversation after the last compaction of the run, for the next turn;
// nil = the run has compacted nothing. own are the items that the run adds to the conversation.
func (s *runState) compaction(own []item.Item) *journal.Compaction {
	state := s.state()
	made := state.Compacted
	switch {
	case made == nil:
		return nil
	case s.start.notOwn > 0 && s.start.system == 0 && s.start.place == (journal.Place{}):
		return nil // it was accepted by a build that stored neither: nobody knows what was in front of its own items
	case s.files() != nil:
		return nil // tools get the files of the whole conversation
	}
	out := &journal.Compaction{After: s.start.place, Summarized: made.Summarized}
	if made.Summarized {
		writer, _ := state.Summarizer(made.Target)
		out.Target, out.NanoUSD = event.Target{Provider: writer.Provider, Model: writer.Model}, state.Cost(*made).NanoUSD
	}
	replaced := -s.start.notOwn // how many of own the compaction was made of
	for _, seg := range state.Transcript[:made.Until] {
		if seg.Kind != loop.Replacement {
			replaced += len(s.events.Items(seg.Ref))
		}
	}
	shown := s.events.Transcript(made.Refs)
	if replaced < 0 || replaced > len(own) || s.start.system > len(shown) {
		return nil // an answer that counts for nothing was replaced, too
	}
	shown = shown[s.start.system:] // the next request brings its own
	// Where the items of the run are unchanged, the compaction is about what is in front of them alone. It then holds
	// whatever becomes of the run.
	if before := len(shown) - replaced; before >= 0 && reflect.DeepEqual(shown[before:], own[:replaced]) {
		shown, replaced = shown[:before], 0
	}
	out.Items, out.Own = shown, replaced
	return out
}

// heldByCompaction returns the memory that a compaction occupies, in bytes.
func heldByCompaction(c *journal.Compaction) int {
	if c == nil {
		return 0
	}
	return eventlog.HeldBytes(c.Items)
}

// summaryTokens returns the size of the summary in a prompt, in tokens.
func (c *compactor) summaryTokens(written summary) int64 {
	if n := written.usage.Output - written.usage.Reasoning; n > 0 {
		return n
	}
	return c.run.state().TokensOf(window.Bytes([]item.Item{item.NewText(item.User, written.text)}))
}

// summarize makes the model call that writes the summary.
func (c *compactor) summarize(a loop.Compact, p window.Prompt, settings window.Settings, plan window.Compaction) (out summary, err error) {
	target, own, err := c.summarizer(a.Target)
	if err != nil {
		return summary{refused: true}, err
	}
	if err := c.reserveSummary(a); err != nil {
		return summary{refused: true}, err
	}
	limit := a.Limit
	if known := target.Window.Threshold(a.MaxOutput); known > 0 && (!own || known < limit) {
		limit = known
	}
	req := c.run.req.modelRequest(a.Target, nil)
	req.Model, req.Items = target.Model, shownTo(target.Target, window.SummaryPrompt(p, settings, plan, limit))
	req.MaxTokens, req.Tools = int(a.MaxOutput), c.tools.offered(false)
	req.ToolChoice = model.ToolChoice{}
	if len(req.Tools) > 0 { // they begin the prompt, which the provider has cached
		req.ToolChoice.Mode = model.ChooseNone
	}
	req.Hosted, req.Params, req.Options, req.Dialect = nil, nil, model.Options{}, ""
	memory := c.run.account.Share()
	defer memory.Close()
	req.Memory = memory
	s := c.run.state()
	ctx, called := c.run.ctx, func(ModelEnd) {}
	if c.observer.observer != nil {
		ctx, called = c.observer.modelCalled(c.observer.inRound(c.run.ctx, s.Spent.Rounds), ModelCall{
			Round: s.Spent.Rounds, Attempt: a.Number, Provider: target.Provider, Request: req, Summary: true,
		})
	}
	began := time.Now()
	turn, err := target.Client.Stream(crash.OnSent(ctx, crash.AfterSummarySend), req, func(model.Delta) error { return context.Cause(c.run.ctx) })
	called(ModelEnd{Turn: turn, Err: err})
	if turn != nil {
		out.usage = turn.Usage
		if target.Price.GPUSecond > 0 && out.usage.GPUMS == 0 {
			out.usage.GPUMS = (time.Since(began) + time.Millisecond - 1).Milliseconds()
		}
	}
	if err != nil {
		failure := asModelError(err)
		out.refused = failure.Status >= 400 || failure.Unsent || failure.Param != ""
		out.uncounted = !out.refused && uncounted(s, turn, err)
		return out, err
	}
	out.uncounted = uncounted(s, turn, nil)
	var text strings.Builder
	for i := range turn.Items {
		if it := &turn.Items[i]; it.Kind == item.Message {
			text.WriteString(it.Text())
		}
	}
	if out.text = strings.TrimSpace(text.String()); out.text == "" {
		return out, errNoSummary
	}
	if turn.Stop == model.StopLength {
		out.text += cutSummary
	}
	return out, nil
}

// summarizer returns the target that writes the summary, and whether it is the one that gets the prompt.
func (c *compactor) summarizer(target int) (route.Target, bool, error) {
	sealed, own := c.run.state().Summarizer(target)
	if own {
		return c.run.req.Targets[target], true, nil
	}
	if c.models == nil {
		return route.Target{}, false, fmt.Errorf("provider %s with the model %s is no longer configured", sealed.Provider, sealed.Model)
	}
	found, ok := c.models.Target(sealed.Provider, sealed.Model)
	if !ok {
		return route.Target{}, false, fmt.Errorf("provider %s with the model %s is no longer configured", sealed.Provider, sealed.Model)
	}
	found.Target = sealed
	return found, false, nil
}

// reserveSummary reserves the most that a summary may cost in the budgets of the run.
func (c *compactor) reserveSummary(a loop.Compact) error {
	if (a.MaxCost == budget.Amount{}) || c.run.state().Reserved != nil {
		return nil
	}
	var err error
	c.reserver.hold, err = c.reserver.reserve(compactionID(a.Number), a.MaxCost, func(scopes []string) []loop.Body {
		return []loop.Body{loop.Reserved{Round: c.run.state().Spent.Rounds, Scopes: scopes, Amount: a.MaxCost, Compaction: a.Number}}
	})
	switch {
	case err == nil:
		crash.At(crash.AfterSummaryIntent)
		return nil
	case errors.As(err, new(*journal.OverBudget)):
		return err
	}
	return &stopsRun{err}
}

// compactionID is the id of the reservation of a summary.
func compactionID(number int) string { return fmt.Sprintf("compaction:%d", number) }
