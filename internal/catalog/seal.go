package catalog

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/schema"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Sealed is a tool of a run as it was when the run began, to be stored with it.
type Sealed struct {
	Definition tool.Definition `json:"definition"`
	Name       string          `json:"name"` // the server's own
	Server     string          `json:"server"`
	Class      tool.Class      `json:"class"`
	Polling    bool            `json:"polling,omitempty"`
	Digest     string          `json:"digest"`
	Price      *money.Nano     `json:"price_nano,omitempty"` // of an execution, in 10⁻⁹ US dollars; nil = nobody has said

	Unlisted bool `json:"unlisted,omitempty"` // it was not offered: see [Form]
	Again    bool `json:"again,omitempty"`    // another form of an earlier tool

	// FromRequest and Origin are those of the server. Only a brought server has an Origin
	// here: the tools of an org's server are still the same if it has other credentials.
	FromRequest bool   `json:"brought,omitempty"`
	Origin      string `json:"origin,omitempty"`
}

// is reports whether the entry is the tool that was sealed.
func (old Sealed) is(e *Entry) bool {
	return e.Server == old.Server && e.Digest == old.Digest && e.FromRequest == old.FromRequest && (!old.FromRequest || e.Origin == old.Origin)
}

// Seal returns the tools of the set, to be stored.
func (s *Set) Seal() []Sealed {
	out := make([]Sealed, 0, len(s.entries)+len(s.unlisted))
	for _, e := range s.entries {
		out = append(out, e.seal())
	}
	for _, name := range slices.Sorted(maps.Keys(s.unlisted)) {
		one := s.unlisted[name].seal()
		one.Unlisted = true
		out = append(out, one)
	}
	return out
}

func (e *Entry) seal() Sealed {
	out := Sealed{
		Definition: e.Definition, Name: e.Name, Server: e.Server, Class: e.Class, Polling: e.Polling, Digest: e.Digest, FromRequest: e.FromRequest, Price: e.Price,
		Again: e.again,
	}
	if e.FromRequest {
		out.Origin = e.Origin
	}
	return out
}

// Recall returns the set of a run that began earlier, with the definitions that were
// offered then. A tool that is still the same is executed. A call of a tool that was
// removed or changed is answered with an error, unless accepted has its present digest by its
// name: a person has been shown the change. Recall returns an error if a stored schema is
// invalid.
func (s *Set) Recall(sealed []Sealed, accepted map[string]string) (*Set, error) {
	then := &Set{Servers: s.Servers, byName: map[string]int{}, unlisted: map[string]*Entry{}, withheld: maps.Clone(s.withheld), lists: s.lists}
	for _, old := range sealed {
		entry := Entry{
			Definition: old.Definition, Name: old.Name, Server: old.Server, Class: old.Class, Polling: old.Polling, Digest: old.Digest, FromRequest: old.FromRequest, Origin: old.Origin,
			Price: old.Price, again: old.Again,
		}
		now := s.Callable(old.Definition.Name)
		if now != nil && accepted[old.Definition.Name] == now.Digest {
			old.Digest = now.Digest
		}
		if now != nil && old.is(now) {
			entry.Definition, entry.Digest = now.Definition, now.Digest
			entry.Tool, entry.Schema, entry.Cacheable, entry.Origin, entry.Place = now.Tool, now.Schema, now.Cacheable, now.Origin, now.Place
		} else if err := entry.markGone(s.lists[old.Server]); err != nil {
			return nil, err
		}
		if old.Unlisted {
			then.unlisted[old.Definition.Name] = &entry
			continue
		}
		then.entries = append(then.entries, entry)
	}
	for i, e := range then.entries {
		then.byName[e.Definition.Name] = i
		then.offered = append(then.offered, e.offer())
		delete(then.withheld, e.Definition.Name)
	}
	return then, nil
}

// markGone makes the entry that of a tool which cannot be executed. now is the list of its server. The class is kept
// for calls that are prepared now: when they are executed, the tool may be back.
func (e *Entry) markGone(now *listing) error {
	compiled, err := schema.Compile(e.Definition.InputSchema)
	if err != nil {
		return fmt.Errorf("tool %s: schema: %w", e.Definition.Name, err)
	}
	why := "the tool of server %q was removed or changed after the run started"
	if now != nil && now.err != nil {
		why = "server %q could not list its tools, so it is unknown whether the tool has changed after the run started"
	}
	e.Schema, e.Tool = compiled, gone{e.Definition, fmt.Sprintf(why, e.Server)}
	return nil
}

// withdrawn returns the tool of an entry that the key of the run may not use any more.
func withdrawn(d tool.Definition) gone {
	return gone{d, "the tool is not available to this run any more"}
}

// gone is a tool that existed when the run began, and why it cannot be executed.
type gone struct {
	definition tool.Definition
	why        string
}

// Definition implements tool.Tool.
func (g gone) Definition() tool.Definition { return g.definition }

// Call implements tool.Tool.
func (g gone) Call(context.Context, tool.Call) (tool.Result, error) {
	return tool.Result{}, fmt.Errorf("%w: %s", tool.ErrNotSent, g.why)
}
