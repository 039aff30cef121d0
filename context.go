package turnpike

import (
	"cmp"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/window"
)

// Compaction is what a run does with prompts that are too long for the context window of its model. The
// zero value does nothing: the run ends with a [*ContextError]. What the model has seen is never
// lost: the Result and the Conversation have all of it.
//
// A prompt has at most the window without room for the answer (the output limit of the call, or a quarter
// of the window up to 8,192 tokens) and without a margin of 5 %. What is too much is left out at once,
// so that the provider's prompt cache serves the calls after it.
type Compaction struct {
	// Mode says what is done; "" = Never.
	Mode CompactionMode

	// Window is the context window of the model in tokens, for the prompt and the answer together; 0 = as this
	// package knows the model. Of a model that it does not know, a prompt is shortened after the provider
	// has refused it.
	Window int64

	// Threshold is the size of a prompt, in tokens, above which it is shortened; 0 = what Window gives. It
	// can only lower that. The least is 1,000.
	Threshold int64

	// ExcludeTools are tools whose results are never left out.
	ExcludeTools []string
}

// CompactionMode is what is done with a prompt that is too long.
type CompactionMode string

// The modes.
const (
	Never     CompactionMode = ""          // nothing
	Prune     CompactionMode = "prune"     // old results of tools are left out
	Summarize CompactionMode = "summarize" // the same, and where it does not free enough the model writes a summary of the older part
)

// The bounds of a Compaction, in tokens.
const (
	minWindow    = 512
	maxWindow    = 1 << 40
	minThreshold = 1000
)

// Compact sets what the call does with prompts that are too long, in place of [Agent].Compaction. Mode(Return) makes one
// model call, and excludes it.
func Compact(c Compaction) Option { return func(o *options) { o.compaction = &c } }

// check returns what is not possible.
func (c Compaction) check() error {
	switch {
	case c.Mode != Never && c.Mode != Prune && c.Mode != Summarize:
		return invalid("Compaction.Mode is %q; use Prune or Summarize", c.Mode)
	case c.Window != 0 && (c.Window < minWindow || c.Window > maxWindow):
		return invalid("Compaction.Window is %d; use 0, or %d to %d", c.Window, minWindow, int64(maxWindow))
	case c.Threshold != 0 && (c.Threshold < minThreshold || c.Threshold > maxWindow):
		return invalid("Compaction.Threshold is %d; use 0, or %d to %d", c.Threshold, minThreshold, int64(maxWindow))
	}
	return nil
}

// compaction returns what the call does with prompts that are too long.
func (c *call) compaction() Compaction {
	if c.o.compaction != nil {
		return *c.o.compaction
	}
	return c.engine.agent.Compaction
}

// policy returns the rules of a run.
func (c Compaction) policy() loop.ContextPolicy {
	p := loop.ContextPolicy{Threshold: c.Threshold, ExcludeTools: slices.Clone(c.ExcludeTools)}
	switch c.Mode {
	case Never:
		return loop.ContextPolicy{}
	case Prune:
		p.Mode = loop.ContextPrune
	case Summarize:
		p.Mode = loop.ContextAuto
	}
	return p
}

// size returns what the model takes.
func (c Compaction) size(model string) window.Size {
	return cmp.Or(window.Size{Window: c.Window}, window.Of(model))
}
