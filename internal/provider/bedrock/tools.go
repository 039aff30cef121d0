package bedrock

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/provider/claude"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/schema"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

type toolConfig struct {
	Tools  []toolEntry `json:"tools"`
	Choice *toolChoice `json:"toolChoice,omitempty"`
}

// toolEntry is a tool, or a cache point after tools.
type toolEntry struct {
	Spec       *toolSpec   `json:"toolSpec,omitempty"`
	CachePoint *cachePoint `json:"cachePoint,omitempty"`
}

type toolSpec struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	InputSchema struct {
		JSON json.RawMessage `json:"json"`
	} `json:"inputSchema"`
	Strict bool `json:"strict,omitempty"`
}

// toolChoice has one member.
type toolChoice struct {
	Auto *struct{}   `json:"auto,omitempty"`
	Any  *struct{}   `json:"any,omitempty"`
	Tool *chosenTool `json:"tool,omitempty"`
}

type chosenTool struct {
	Name string `json:"name"`
}

// forced reports whether the model must call a tool.
func (t *translation) forced() bool {
	if t.ToolConfig != nil && t.ToolConfig.Choice != nil {
		return t.ToolConfig.Choice.Auto == nil
	}
	return t.Additional != nil && t.Additional.ToolChoice.Forces()
}

// tools sets the tools that the model may call, and how.
func (t *translation) tools() {
	req := t.req
	called := t.called()
	if t.traits.noTools && len(req.Tools)+len(called) > 0 {
		t.Refuse("tools", fmt.Sprintf("the model %.100q takes no tools", req.Model))
		return
	}
	if req.ToolChoice.Mode == model.ChooseNone && len(called) == 0 {
		return // without tools there is no call
	}
	var entries []toolEntry
	for i, one := range req.Tools {
		if req.ToolChoice.Only != nil && !slices.Contains(req.ToolChoice.Only, one.Name) {
			continue // the dialect has no choice among some of the tools
		}
		spec := t.spec(one)
		if t.traits.vendor == anthropicModel && !claude.TakesNames(spec.InputSchema.JSON) {
			t.LeaveOut(t.req, i)
			continue
		}
		entries = append(entries, toolEntry{Spec: spec})
		if t.marksTool(one.Cache) {
			entries = append(entries, toolEntry{CachePoint: t.cachePoint(one.Cache)})
		}
	}
	callable := len(entries) > 0
	if !callable {
		entries = declared(called)
	}
	if len(entries) == 0 {
		return
	}
	t.ToolConfig = &toolConfig{Tools: entries}
	t.choose(callable)
}

// marksTool reports whether a cache point follows a tool. Nova has none there.
func (t *translation) marksTool(c *item.Cache) bool {
	if t.traits.vendor == novaModel && c != nil {
		t.Drop("cache_control", true)
		return false
	}
	return t.marks.Mark(c)
}

// spec returns a tool as the dialect declares it.
func (t *translation) spec(one model.Tool) *toolSpec {
	d := &toolSpec{Name: one.Name}
	var rest json.RawMessage
	d.InputSchema.JSON, d.Description, rest = schema.Arguments(one.InputSchema, one.Description)
	if one.Strict == nil || !*one.Strict {
		return d
	}
	strict := t.traits.claude.Strict(d.InputSchema.JSON, rest == nil)
	if t.Drop(wire.NameOf(t.req, wire.MemberToolStrict), strict == nil); strict != nil {
		d.Strict, d.InputSchema.JSON = true, strict
	}
	return d
}

// called returns the names of the tools that the transcript has calls of, in the order
// of their first calls.
func (t *translation) called() []string {
	var names []string
	seen := map[string]bool{}
	for i := range t.req.Items {
		if it := &t.req.Items[i]; it.Kind == item.ToolCall && !seen[it.Name] {
			seen[it.Name] = true
			names = append(names, it.Name)
		}
	}
	return names
}

// declared returns the tools of earlier calls, where no tool is offered any more: the
// dialect refuses calls and results in a request that declares no tool.
func declared(names []string) []toolEntry {
	var entries []toolEntry
	for _, name := range names {
		d := &toolSpec{Name: name, Description: "This tool is not available any more."}
		d.InputSchema.JSON = json.RawMessage(`{"type":"object","properties":{}}`)
		entries = append(entries, toolEntry{Spec: d})
	}
	return entries
}

// choose sets how the model may use the tools. callable is false where none of them may
// be called.
func (t *translation) choose(callable bool) {
	mode, name := t.req.ToolChoice.Mode, t.req.ToolChoice.Name
	if !callable {
		mode = model.ChooseNone
	}
	mode = t.traits.claude.Mode(mode, &t.Losses)
	single := t.req.ParallelCalls != nil && !*t.req.ParallelCalls
	if own := t.traits.vendor == anthropicModel && !t.traits.claude.NoSchema; own && (single || mode == model.ChooseNone) {
		// Claude 4.5 and later. Its own API expresses what Converse cannot: no call, and one call at a time.
		// This choice replaces that of Converse, which conflicts with it.
		t.own().ToolChoice = claude.ChoiceOf(mode, name, true)
		return
	}
	t.Drop("parallel_tool_calls", single && callable)
	t.Drop("tool_choice", mode == model.ChooseNone && t.req.ToolChoice.Mode == model.ChooseNone)
	switch mode {
	case model.ChooseRequired:
		t.ToolConfig.Choice = &toolChoice{Any: &struct{}{}}
	case model.ChooseNamed:
		t.ToolConfig.Choice = &toolChoice{Tool: &chosenTool{name}}
	case model.ChooseAuto:
		t.ToolConfig.Choice = &toolChoice{Auto: &struct{}{}}
	}
}
