package catalog

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/schema"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Entry is a tool as a run sees it.
type Entry struct {
	Definition tool.Definition // with the name that the model sees
	Server     string
	Tool       tool.Tool
	Schema     *schema.Schema
	Class      tool.Class
	Polling    bool
	Cacheable  bool   // an earlier result of the same call may be used
	Digest     string // of the definition: changes when the tool does
	Origin     string // of the server
}

// Set is the tools of a run, in an order that depends on nothing but them.
type Set struct {
	Servers []loop.Server // in configuration order

	entries  []Entry
	bytes    int // of their definitions
	byName   map[string]int
	withheld map[string]string // names that exist and are not offered → server
	offered  []model.Tool

	collisions []loop.Collision
	told       *atomic.Bool // whether NewCollisions has returned them; nil = there is nothing to tell
}

// MaxCollisions is the most collisions of names that a set remembers. All are
// counted in the log.
const MaxCollisions = 32

// Classed is a Tool that knows its execution class. The others are
// [tool.Once].
type Classed interface{ Class() tool.Class }

// Lookup returns the tool of that name, or nil.
func (s *Set) Lookup(name string) *Entry {
	if i, ok := s.byName[name]; ok {
		return &s.entries[i]
	}
	return nil
}

// Withheld returns the server which has a tool of that name that its allow-list
// leaves out, or "".
func (s *Set) Withheld(name string) string { return s.withheld[name] }

// NewCollisions returns the tools that the set left out because an earlier one has
// their name, at most [MaxCollisions]. Only the first call returns them: runs that
// share a cached set record them once.
func (s *Set) NewCollisions() []loop.Collision {
	if s.told == nil || s.told.Swap(true) {
		return nil
	}
	return s.collisions
}

// Offered returns the definitions for the model. The caller must not change them.
func (s *Set) Offered() []model.Tool { return s.offered }

// With returns the set with one more tool, at the end of what is offered: what
// stood there before keeps its bytes. A name that is taken stays taken.
func (s *Set) With(e Entry) *Set {
	if s.Lookup(e.Definition.Name) != nil {
		return s
	}
	more := *s
	more.entries = append(slices.Clip(s.entries), e)
	more.offered = append(slices.Clip(s.offered), model.Tool{Definition: e.Definition})
	more.byName = maps.Clone(s.byName)
	more.byName[e.Definition.Name] = len(more.entries) - 1
	return &more
}

// Names returns the names of the tools, sorted.
func (s *Set) Names() []string {
	names := make([]string, len(s.entries))
	for i, e := range s.entries {
		names[i] = e.Definition.Name
	}
	return names
}

func (s *Set) incomplete() bool {
	return slices.ContainsFunc(s.Servers, func(server loop.Server) bool { return server.Error != "" })
}

// assemble applies the rules to what the servers answered.
func assemble(servers []Server, listings []listing, log *slog.Logger) *Set {
	set := &Set{byName: map[string]int{}, withheld: map[string]string{}, told: new(atomic.Bool)}
	taken := map[string]string{} // name → server
	for i, server := range servers {
		log := log.With("server", server.Name)
		found := loop.Server{Label: server.Name, Required: server.Required}
		if err := listings[i].err; err != nil {
			found.Error = err.Error()
		} else {
			found.Tools = set.add(server, listings[i].tools, taken, log)
		}
		set.Servers = append(set.Servers, found)
	}
	set.sort()
	return set
}

// The bounds on the tools of one run: each model call of the run sends all of
// them. Servers fill them in the order of the configuration.
const (
	MaxTools = 128
	MaxBytes = 2 << 20 // of names, titles, descriptions and schemas together
)

// add takes one server's tools and returns how many it took.
func (s *Set) add(server Server, tools []tool.Tool, taken map[string]string, log *slog.Logger) int {
	valid, added, beyond := 0, 0, 0
	says := report{log: log}
	for _, t := range tools {
		original := t.Definition().Name
		u, err := examine(t.Definition())
		var refused *Refusal
		if errors.As(err, &refused) {
			says.tool(refused.Code, original, "reason", refused.Reason)
			continue
		}
		valid++
		u.definition.Name = server.name(original)
		name := u.definition.Name
		if !server.offers(original) {
			s.withheld[name] = server.Name
			continue
		}
		if first, ok := taken[name]; ok {
			says.tool("mcp_tool_name_collision", name, "kept_from", first)
			if len(s.collisions) < MaxCollisions {
				s.collisions = append(s.collisions, loop.Collision{Tool: name, Server: server.Name, KeptFrom: first})
			}
			continue
		}
		if !s.hasRoom(u.definition) {
			beyond++
			continue
		}
		says.examined(u)
		taken[name] = server.Name
		s.entries = append(s.entries, newEntry(server, t, original, u.definition, u.schema))
		s.bytes += size(u.definition)
		added++
	}
	says.end()
	if beyond > 0 {
		log.Warn("mcp_too_many_tools", "left_out", beyond, "limit", MaxTools, "limit_bytes", MaxBytes)
	}
	if valid == 0 {
		log.Warn("mcp_server_no_valid_tools", "listed", len(tools))
	}
	return added
}

// hasRoom reports whether one more tool is within the bounds of a run.
func (s *Set) hasRoom(d tool.Definition) bool {
	return len(s.entries) < MaxTools && s.bytes+size(d) <= MaxBytes
}

func size(d tool.Definition) int {
	return len(d.Name) + len(d.Title) + len(d.Description) + len(d.InputSchema)
}

// NewEntry returns a tool of the gateway's own as a run sees it. The error says
// what is wrong with its schema.
func NewEntry(t tool.Tool) (Entry, error) {
	def := t.Definition()
	compiled, err := schema.Compile(def.InputSchema)
	if err != nil {
		return Entry{}, fmt.Errorf("tool %s: schema: %w", def.Name, err)
	}
	e := newEntry(Server{Name: "turnpike"}, t, def.Name, def, compiled)
	e.Cacheable = false // what it answers is about its run
	return e, nil
}

func newEntry(server Server, t tool.Tool, original string, def tool.Definition, compiled *schema.Schema) Entry {
	class := tool.Once
	if c, ok := t.(Classed); ok && c.Class() != "" {
		class = c.Class()
	}
	text, _ := json.Marshal(def) // strings and raw JSON that compiled: cannot fail
	sum := sha256.Sum256(text)
	return Entry{
		Definition: def, Server: server.Name, Tool: t, Schema: compiled, Class: class,
		Polling: slices.Contains(server.Polling, original), Cacheable: server.reuses(original, def.Annotations, class),
		Digest: hex.EncodeToString(sum[:]), Origin: server.Origin,
	}
}

// sort puts the tools in the order of their names: the same tools make the same
// bytes whichever server answered first, so that providers can cache the prompt.
func (s *Set) sort() {
	slices.SortFunc(s.entries, func(a, b Entry) int { return cmp.Compare(a.Definition.Name, b.Definition.Name) })
	for i, e := range s.entries {
		s.byName[e.Definition.Name] = i
		s.offered = append(s.offered, model.Tool{Definition: e.Definition})
		delete(s.withheld, e.Definition.Name)
	}
}
