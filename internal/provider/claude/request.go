package claude

import (
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Thinking is the member of a request that switches thinking.
type Thinking struct {
	Type         string `json:"type"`
	BudgetTokens int    `json:"budget_tokens,omitempty"`
	Display      string `json:"display,omitempty"`

	BlockBinding *BlockBinding `json:"block_binding,omitempty"`
}

// IsOn reports whether the model thinks. nil is off.
func (t *Thinking) IsOn() bool { return t != nil && t.Type != "disabled" }

// BlockBinding says what the provider does with thinking that it returned for another prompt.
type BlockBinding struct {
	PrefixMismatchBehavior string `json:"prefix_mismatch_behavior"` // drop_block; the default is an error
}

// Plan is how a request makes a model think.
type Plan struct {
	Thinking *Thinking // nil = the request says nothing of it
	Effort   string    // of the output; "" = none
	Tokens   int       // of thinking, which count as output; 0 = the model does not think
	Exact    bool      // the model thinks as it was asked to
}

func adaptively(effort string) Plan {
	return Plan{Thinking: &Thinking{Type: "adaptive", Display: "summarized"}, Tokens: Budget(effort), Exact: true}
}

// Plan returns how a request makes the model think as much as its effort says. A forced tool call
// excludes thinking. dialect is that of the native forms of thinking that are sent.
func (r Rules) Plan(req *model.Request, forced bool, dialect string) Plan {
	effort := req.Effort
	switch effort {
	case "none":
		return r.planNone()
	case "":
		if r.ThinksByDefault && !forced {
			return adaptively("high") // the provider's default, with thoughts that can be read
		}
		return Plan{Exact: true}
	case "minimal", "low", "medium", "high", "xhigh", "max":
	default:
		return Plan{}
	}
	switch {
	case forced:
		return Plan{}
	case r.Adaptive:
		p := adaptively(effort)
		p.Effort = effort
		switch {
		case effort == "minimal": // the least that there is
			p.Effort = "low"
		case effort == "xhigh" && !r.Xhigh:
			p.Effort, p.Exact = "high", false
		}
		return p
	case !continuesThinking(req.Items, dialect):
		return Plan{}
	}
	tokens := Budget(effort)
	if req.MaxTokens > 0 {
		tokens = min(tokens, req.MaxTokens-1)
	}
	if tokens < MinBudget {
		return Plan{}
	}
	return Plan{Thinking: &Thinking{Type: "enabled", BudgetTokens: tokens}, Tokens: tokens, Exact: true}
}

// planNone switches thinking off, if the model can be told so.
func (r Rules) planNone() Plan {
	switch {
	case r.AlwaysThinks:
		p := adaptively("low")
		p.Effort, p.Exact = "low", false // the least that there is
		return p
	case r.Off != "":
		return Plan{Thinking: &Thinking{Type: r.Off}, Exact: true}
	}
	return Plan{Exact: true}
}

// continuesThinking reports whether the transcript allows thinking with a number of tokens. Answers with
// tool results between them are one turn to the provider: the first of them must begin with its own
// thinking, which an answer of another provider does not. The later ones may have none.
func continuesThinking(items []item.Item, dialect string) bool {
	first := -1
	for i := len(items) - 1; i >= 0 && (items[i].Turn != 0 || items[i].Kind == item.ToolResult); i-- {
		if items[i].Turn != 0 {
			first = i
		}
	}
	return first < 0 || items[first].Kind == item.Reasoning && wire.NativeOf(&items[first], dialect) != nil
}

// Sampling is the sampling of a request; nil = the provider's default.
type Sampling struct {
	Temperature, TopP *float64
	TopK              *int64
}

// Sample returns the sampling of a request. Models refuse it together with thinking, some of them always,
// and most of them temperature and top_p together. Temperature ends at 1.
func (r Rules) Sample(req *model.Request, thinks bool, l *wire.Losses) Sampling {
	differs := func(v *float64) bool { return v != nil && *v != 1 }
	if r.NoSampling || thinks {
		l.Drop("temperature", differs(req.Temperature))
		l.Drop("top_p", differs(req.TopP))
		l.Drop("top_k", req.TopK != nil)
		return Sampling{}
	}
	if req.Temperature == nil {
		return Sampling{TopP: req.TopP, TopK: req.TopK}
	}
	least := min(*req.Temperature, 1)
	l.Drop("temperature", *req.Temperature > 1)
	l.Drop("top_p", differs(req.TopP))
	return Sampling{Temperature: &least, TopK: req.TopK}
}

// Choice is how the model may use the tools.
type Choice struct {
	Type            string `json:"type"`
	Name            string `json:"name,omitempty"`
	DisableParallel bool   `json:"disable_parallel_tool_use,omitempty"`
}

// Forces reports whether the model must call a tool. nil leaves it to the model.
func (c *Choice) Forces() bool { return c != nil && (c.Type == "any" || c.Type == "tool") }

// ChoiceOf returns a choice; nil = it is left to the model. single allows one call at a time.
func ChoiceOf(mode model.ToolChoiceMode, name string, single bool) *Choice {
	types := map[model.ToolChoiceMode]string{
		model.ChooseNone: "none", model.ChooseRequired: "any", model.ChooseNamed: "tool", model.ChooseAuto: "auto",
	}
	c := &Choice{Type: types[mode], DisableParallel: single && mode != model.ChooseNone}
	switch {
	case mode == model.ChooseNamed:
		c.Name = name
	case c.Type == "" && single:
		c.Type = "auto"
	case c.Type == "":
		return nil
	}
	return c
}

// Mode returns the mode of a tool choice that the model takes, and notes if it is another one.
func (r Rules) Mode(mode model.ToolChoiceMode, l *wire.Losses) model.ToolChoiceMode {
	if r.NoForcedCall && (mode == model.ChooseRequired || mode == model.ChooseNamed) {
		l.Drop("tool_choice", true)
		return model.ChooseAuto
	}
	return mode
}

// Strict returns the schema of a tool's arguments as the model is held to it; nil = it cannot be held to
// all of it: https://platform.claude.com/docs/en/agents-and-tools/tool-use/strict-tool-use. whole is false
// if the arguments are only a part of what the tool takes.
func (r Rules) Strict(arguments json.RawMessage, whole bool) json.RawMessage {
	reduced, lost := AnswerSchema(arguments)
	if !r.StrictTools || !whole || lost != nil {
		return nil
	}
	return reduced
}

// StopOf maps a stop reason; one that is not known ends the turn. Two are Bedrock's own.
func StopOf(raw string) model.Stop {
	switch raw {
	case "tool_use":
		return model.StopCalls
	case "max_tokens", "model_context_window_exceeded":
		return model.StopLength
	case "refusal", "guardrail_intervened", "content_filtered":
		return model.StopFilter
	}
	return model.StopEnd
}
