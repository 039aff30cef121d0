package catalog

import (
	"context"
	"fmt"
	"maps"

	"github.com/turnpike-gateway/turnpike/internal/schema"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Sealed is a tool of a run as it was when the run began, to be stored with it.
type Sealed struct {
	Definition tool.Definition `json:"definition"`
	Server     string          `json:"server"`
	Class      tool.Class      `json:"class"`
	Polling    bool            `json:"polling,omitempty"`
	Digest     string          `json:"digest"`
}

// Seal returns the tools of the set, to be stored.
func (s *Set) Seal() []Sealed {
	out := make([]Sealed, len(s.entries))
	for i, e := range s.entries {
		out[i] = Sealed{e.Definition, e.Server, e.Class, e.Polling, e.Digest}
	}
	return out
}

// Recall returns the set of a run that began earlier: it offers what was offered
// then. A tool that is the same now is executed; one that is gone or has changed
// since answers that it was not. The error says which stored schema is no schema.
func (s *Set) Recall(sealed []Sealed) (*Set, error) {
	then := &Set{Servers: s.Servers, byName: map[string]int{}, withheld: maps.Clone(s.withheld)}
	for _, old := range sealed {
		entry := Entry{Definition: old.Definition, Server: old.Server, Class: old.Class, Polling: old.Polling, Digest: old.Digest}
		if now := s.Lookup(old.Definition.Name); now != nil && now.Server == old.Server && now.Digest == old.Digest {
			entry.Tool, entry.Schema, entry.Cacheable, entry.Origin = now.Tool, now.Schema, now.Cacheable, now.Origin
		} else if err := entry.mourn(); err != nil {
			return nil, err
		}
		then.entries = append(then.entries, entry)
	}
	for i, e := range then.entries {
		then.byName[e.Definition.Name] = i
		then.offered = append(then.offered, model.Tool{Definition: e.Definition})
		delete(then.withheld, e.Definition.Name)
	}
	return then, nil
}

// mourn makes the entry one of a tool that cannot be executed. It keeps its
// class, which a call that is prepared now takes with it: by the time that it is
// executed the tool may be back.
func (e *Entry) mourn() error {
	compiled, err := schema.Compile(e.Definition.InputSchema)
	if err != nil {
		return fmt.Errorf("tool %s: schema: %w", e.Definition.Name, err)
	}
	e.Schema, e.Tool = compiled, gone{e.Definition, e.Server}
	return nil
}

// gone is a tool that was there when the run began.
type gone struct {
	definition tool.Definition
	server     string
}

// Definition implements tool.Tool.
func (g gone) Definition() tool.Definition { return g.definition }

// Call implements tool.Tool.
func (g gone) Call(context.Context, tool.Call) (tool.Result, error) {
	return tool.Result{}, fmt.Errorf("%w: the tool of server %q was removed or changed after the run started", tool.ErrNotSent, g.server)
}
