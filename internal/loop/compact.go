package loop

import (
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/window"
	"github.com/turnpike-gateway/turnpike/model"
)

// The limits on compactions of a run.
const (
	maxFailedCompactions = 3 // in a row; then no further one is tried in the run
	maxIneffective       = 2 // in a row; then a prompt above its threshold ends a run that may summarise
	maxRefusedPrompts    = 2 // refusals of a round's prompt as too long; the last one ends the run
)

// Compactions is what a run knows of its attempts to make prompts shorter.
type Compactions struct {
	Begun       int // attempts, with those whose owner died while the summary was written
	Failed      int // the latest in a row whose summary failed
	Ineffective int // the latest in a row that freed nothing

	Refused int            // how often providers have refused a prompt of the round as too long
	Largest []window.Share // the largest parts of the latest prompt that could not be made shorter

	tried  int     // the target of the round's latest attempt, from 1; 0 = there was none in the round
	limits []int64 // by target: the size that its provider has named in a refusal, in tokens; 0 = none
}

// limit returns the size that the provider of a target has named in a refusal; 0 = none.
func (c *Compactions) limit(target int) int64 {
	if target >= 0 && target < len(c.limits) {
		return c.limits[target]
	}
	return 0
}

// refuse records that a target has refused a prompt as too long, and the size that it has named.
func (c *Compactions) refuse(target int, limit int64) {
	c.Refused++
	if limit <= 0 || target < 0 {
		return
	}
	limits := slices.Clone(c.limits)
	for len(limits) <= target {
		limits = append(limits, 0)
	}
	if limits[target] == 0 || limit < limits[target] {
		limits[target] = limit
	}
	c.limits = limits
}

// PromptTokens returns the size of the next prompt, in tokens: what the provider has counted, and an
// estimate of what came since.
func (s *State) PromptTokens() int64 { return s.CountedTokens + s.tokens.Estimate(s.UncountedBytes) }

// TokensOf returns an estimate of so many bytes of text, in tokens.
func (s *State) TokensOf(bytes int64) int64 { return s.tokens.Estimate(bytes) }

// size returns what the model of a target takes: what was known when the run was accepted, or less if
// its provider has refused a prompt.
func (s *State) size(target int) window.Size {
	var out window.Size
	if target >= 0 && target < len(s.Accepted.Targets) {
		out = s.Accepted.Targets[target].Window
	}
	named := s.Compactions.limit(target)
	switch {
	case named <= 0:
	case !out.Known():
		out.Window = named
	case out.Window > 0:
		out.Window = min(out.Window, named)
	}
	if named > 0 && out.Input > 0 {
		out.Input = min(out.Input, named)
	}
	return out
}

// threshold returns the size above which a prompt of a target is compacted, in tokens; 0 = none is known.
func (s *State) threshold(target int) int64 {
	policy := s.Accepted.Context
	known := s.size(target).Threshold(s.Accepted.MaxTokens)
	switch {
	case policy.Threshold > 0 && known > 0:
		return min(policy.Threshold, known)
	case policy.Threshold > 0:
		return policy.Threshold
	}
	return known
}

// Summarizer returns the target that writes the summaries of a run, and whether it is the target itself
// that gets the prompt.
func (s *State) Summarizer(target int) (summarizer Target, own bool) {
	if s.Accepted.Summarizer != nil {
		return *s.Accepted.Summarizer, false
	}
	if target >= 0 && target < len(s.Accepted.Targets) {
		return s.Accepted.Targets[target], true
	}
	return Target{}, true
}

// CompactSettings returns the settings with which the compaction is planned.
func (s *State) CompactSettings(a Compact) window.Settings {
	return window.Settings{
		Size: s.size(a.Target), Threshold: a.Limit, Output: s.Accepted.MaxTokens, PruneOnly: a.PruneOnly, ExcludeTools: s.Accepted.Context.ExcludeTools,
		Price: s.priceOf(a.Target),
	}
}

// keepsContext reports whether the gateway keeps the prompts of a target within its window.
func (s decision) keepsContext(target int) bool {
	own := target >= 0 && target < len(s.Accepted.Targets) && s.Accepted.Targets[target].OwnContext
	return s.Accepted.Context.Mode != ContextOff && !own && !s.relays()
}

// compacts reports whether the run may still try to make a prompt for the target shorter.
func (s decision) compacts(target int) bool {
	c := s.Compactions
	return s.keepsContext(target) && c.Failed < maxFailedCompactions && c.Ineffective < maxIneffective
}

// compactFirst returns what is done before a call of the target because its prompt is above the threshold; false = the
// call is made. There is one attempt in each round for each target.
func (s decision) compactFirst(target int) (Action, bool) {
	limit := int64(0)
	if s.keepsContext(target) {
		limit = s.threshold(target)
	}
	switch {
	case limit <= 0 || s.PromptTokens() <= limit:
		return nil, false
	case s.Accepted.Context.Mode == ContextAuto && s.Compactions.Ineffective >= maxIneffective:
		return s.conclude(event.TooLong), true
	case !s.compacts(target) || s.Compactions.tried == target+1:
		return nil, false
	}
	return s.compact(target, s.PromptTokens(), limit), true
}

// compactRefused returns the compaction of a prompt that the provider has refused as too long; false = the run ends.
func (s decision) compactRefused() (Action, bool) {
	a := s.Attempt
	if !s.compacts(a.Target) || a.Reacted || a.Failed.Forwarded || a.Failed.ToolRan || s.Compactions.Refused >= maxRefusedPrompts {
		return nil, false
	}
	// What the estimate says is wrong if it is below what the provider takes.
	tokens := max(s.PromptTokens(), s.Compactions.limit(a.Target)+1)
	limit := tokens - tokens/4
	if known := s.threshold(a.Target); known > 0 {
		limit = min(limit, known)
	}
	return s.compact(a.Target, tokens, max(limit, 1)), true
}

// compact returns the compaction of a prompt for a target, with the most that its summary may cost. Where a limit of the
// run has no room for one, nothing is summarised.
func (s decision) compact(target int, tokens, limit int64) Action {
	a := Compact{Number: s.Compactions.Begun + 1, Target: target, Tokens: tokens, Limit: limit, PruneOnly: s.Accepted.Context.Mode == ContextPrune}
	if a.PruneOnly {
		return s.inTime(a)
	}
	summarizer, _ := s.Summarizer(target)
	if s.limitsMoney() && !summarizer.Price.Known() {
		a.PruneOnly = true
		return s.inTime(a)
	}
	a.MaxOutput = s.CompactSettings(a).SummaryTokens()
	most, output, over := s.Limits.Plan(s.Spent, budget.Call{
		CountedTokens: s.CountedTokens + tokens - s.PromptTokens(), UncountedBytes: s.UncountedBytes + window.OrderBytes,
		AskedOutput: a.MaxOutput, Price: summarizer.Price, Estimate: s.Accepted.Rules.Estimate,
	}, len(s.Budgets) > 0)
	if over != "" || output > 0 && output < a.MaxOutput { // a summary that is cut short would cost money and be worth little
		a.PruneOnly, a.MaxOutput = true, 0
		return s.inTime(a)
	}
	a.MaxCost = most
	return s.inTime(a)
}

// compact makes the model see the replacement. A model call that failed because the context was
// too long is then made again.
func (s *State) compact(b Compacted) {
	s.Compactions.tried = b.Target + 1
	s.spend(s.Counts.Rounds, b.Usage, s.Cost(b))
	s.Reserved = nil
	s.Compactions.Begun++
	s.Attempt.Reacted = s.Attempt.Failed != nil
	switch {
	case b.Failed:
		s.Compactions.Failed++
		return
	case !s.replaces(b):
		s.Compactions.Failed = 0
		s.Compactions.Ineffective++
		s.Compactions.Largest = b.Largest
		return
	}
	s.Compactions.Failed, s.Compactions.Ineffective, s.Compactions.Largest = 0, 0, nil
	s.extend(Segment{Kind: Replacement, Refs: b.Refs, Until: b.Until})
	s.Compacted = &b
	more := s.lateBytes() + s.continueBytes()
	s.CountedTokens, s.UncountedBytes = max(0, b.After), more
	if b.Bytes > 0 { // an estimate is not a count: what the next call may cost is reserved by its bytes
		s.CountedTokens, s.UncountedBytes = 0, b.Bytes+more
	}
	s.Attempt.Compacted = s.Attempt.Failed != nil
}

// allowCompacted allows it where the rules want a compaction.
func allowCompacted(s *State, b Compacted) error {
	a, compacts := Decide(*s).(Compact)
	switch {
	case !compacts || a.Target != b.Target:
		return expects(s, Compact{}, false)
	case b.Failed && len(b.Refs) > 0:
		return fmt.Errorf("it has failed, and it has items for the model")
	case b.Before < 0 || b.After < 0 || b.Bytes < 0:
		return fmt.Errorf("its sizes, %d and %d tokens, are negative", b.Before, b.After)
	case b.Usage != (model.Usage{}) && a.PruneOnly:
		return fmt.Errorf("it has used a model, and may only prune")
	case !b.Failed && len(b.Refs) > 0 && !s.replaces(b):
		return fmt.Errorf("it replaces %d segments of %d by %d rows", b.Until, len(s.Transcript), len(b.Refs))
	}
	return nil
}

// SeenPart is a row of what the model sees.
type SeenPart struct {
	Ref string

	// Until is that of a [Compacted] which replaces the rows up to this one; 0 = none can end here, because an
	// earlier one has replaced what is before.
	Until int
}

// SeenParts returns the rows that the model sees, in order: see Seen.
func (s *State) SeenParts() (out []SeenPart) {
	from := 0
	for _, seg := range slices.Backward(s.Transcript) {
		if seg.Kind == Replacement {
			for _, ref := range seg.Refs {
				out = append(out, SeenPart{Ref: ref})
			}
			from = seg.Until
			break
		}
	}
	for i, seg := range s.Transcript[from:] {
		if seg.Kind != Replacement {
			out = append(out, SeenPart{seg.Ref, from + i + 1})
		}
	}
	return out
}
