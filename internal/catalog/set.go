package catalog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/schema"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Entry is a tool as a run sees it.
type Entry struct {
	Definition  tool.Definition // with the name that the model sees
	Name        string          // the server's own
	Server      string
	Tool        tool.Tool
	Schema      *schema.Schema
	Class       tool.Class
	Polling     bool
	Cacheable   bool        // an earlier result of the same call may be used
	Digest      string      // of the definition: changes when the tool does
	Origin      string      // of the server
	Place       Place       // where its calls go
	Price       *money.Nano // of an execution; nil = nobody has said
	FromRequest bool        // the server is not one of the org
	Program     bool        // it belongs to no server: it is a tool of the program that the gateway is a part of

	kind  kind
	own   bool // a tool of the gateway itself
	again bool // an earlier tool of the server has the same Name: it is another form of it
}

// kind is what executes a tool. The tools of a set are in the order of the kinds.
type kind int

const (
	ofGateway  kind = iota // the gateway itself: a built-in tool
	ofEndpoint             // an address of the tool's own: an HTTP tool
	ofServer               // an MCP server
)

// kindOf returns the kind of a tool of the server, by the server's own name of it.
func kindOf(server Server, name string) kind {
	if server.placeOf(name).ID == "" {
		return ofGateway
	}
	if _, own := server.Places[name]; own {
		return ofEndpoint
	}
	return ofServer
}

// AllowedBy reports whether a key may use the tool.
func (e *Entry) AllowedBy(a org.Access) bool {
	switch {
	case e.own:
		return true
	case e.FromRequest && !a.AllowsAddresses(), !e.FromRequest && !a.AllowsServer(e.Server):
		return false
	}
	return a.AllowsTool(e.Name) && (!a.ReadOnly || e.Class == tool.Read)
}

// Own reports whether the tool is one of the gateway itself, which answers about its run.
func (e *Entry) Own() bool { return e.own }

// Unpriced reports whether nobody has said what the tool costs. The gateway's own tools are free.
func (e *Entry) Unpriced() bool { return e.Price == nil && !e.own }

// Withdrawn returns the entry without what executes it: the key of the run may not use the
// tool any more.
func (e *Entry) Withdrawn() *Entry {
	gone := *e
	gone.Tool, gone.Cacheable = withdrawn(e.Definition), false
	return &gone
}

// Set is the tools of a run. Their order depends only on the tools.
type Set struct {
	Servers []loop.Server // in configuration order

	entries  []Entry
	unlisted map[string]*Entry // that are not offered, and executed: see [Form]
	bytes    int               // of their definitions
	byName   map[string]int
	withheld map[string]string // names that exist and are not offered → server
	offered  []model.Tool

	collisions []collision
	lists      map[string]*listing // by server
}

// MaxCollisions is the most collisions of names that a set remembers. All are
// counted in the log.
const MaxCollisions = 32

// Lookup returns the tool of that name, or nil.
func (s *Set) Lookup(name string) *Entry {
	if i, ok := s.byName[name]; ok {
		return &s.entries[i]
	}
	return nil
}

// Callable returns the tool that a call of that name executes, or nil. Beside those that Lookup finds there are tools that are not offered:
// see [Form].
func (s *Set) Callable(name string) *Entry {
	if e := s.Lookup(name); e != nil {
		return e
	}
	return s.unlisted[name]
}

// Has reports whether the server has listed a valid tool of that name, its own, whether or not
// the set offers it.
func (s *Set) Has(server, name string) bool { return s.lists[server].has(name) }

// Outdated reports whether one of the servers has announced, since its list was requested, that
// its tools have changed: see [Catalog.Renew].
func (s *Set) Outdated() bool {
	for _, l := range s.lists {
		if l.outdated() {
			return true
		}
	}
	return false
}

// current returns the server's list, or nil if there is none that is not out of date. s may be nil.
func (s *Set) current(server string) *listing {
	if s == nil || s.lists[server] == nil || s.lists[server].outdated() {
		return nil
	}
	return s.lists[server]
}

// Unavailable returns the names of the servers that could not list their tools.
func (s *Set) Unavailable() (names []string) {
	for _, server := range s.Servers {
		if server.Error != "" {
			names = append(names, server.Label)
		}
	}
	return names
}

// Withheld returns the name of the server that has a tool of that name which its
// allow-list excludes, or "".
func (s *Set) Withheld(name string) string { return s.withheld[name] }

// NewCollisions returns the tools that the set left out because an earlier one has
// their name, at most [MaxCollisions]. A collision is returned once, whichever sets it is
// in, until one of the two servers is asked for its tools again.
func (s *Set) NewCollisions() (out []loop.Collision) {
	for _, c := range s.collisions {
		if c.list.recorded.first(c.Collision) {
			out = append(out, c.Collision)
		}
	}
	return out
}

// Offered returns the definitions for the model. The caller must not change them.
func (s *Set) Offered() []model.Tool { return s.offered }

// WithSource returns the set with the tools of a source of the gateway itself, which belong to no
// server. They are offered last, so that the bytes of the others in a request do not change. A tool
// whose name is taken is left out.
func (s *Set) WithSource(ctx context.Context, source tool.Source) (*Set, error) {
	tools, err := source.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range tools {
		e, err := newOwnEntry(t)
		if err != nil {
			return nil, err
		}
		s = s.with(e)
	}
	return s, nil
}

// WithProgram returns the set with those tools of the program that a key may use. They belong to no
// server, so that a key with a list of servers may use none. A tool whose name is taken is left out.
func (s *Set) WithProgram(tools []tool.Tool, a org.Access) (*Set, error) {
	for _, t := range tools {
		e, err := newOwnEntry(t)
		if err != nil {
			return nil, err
		}
		if e.own, e.Program = false, true; a.Servers == nil && e.AllowedBy(a) {
			s = s.with(e)
		}
	}
	return s, nil
}

// All returns the tools, in their order. The caller must not change them.
func (s *Set) All() iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for i := range s.entries {
			if !yield(&s.entries[i]) {
				return
			}
		}
	}
}

// Selects reports whether selects holds for a tool of the set, by the name that the model sees and the server's own.
func (s *Set) Selects(selects func(name, own string) bool) bool {
	for e := range s.All() {
		if selects(e.Definition.Name, e.Name) {
			return true
		}
	}
	return false
}

// with returns the set with one more tool. If the name is taken, the set is unchanged.
func (s *Set) with(e Entry) *Set {
	if s.Lookup(e.Definition.Name) != nil {
		return s
	}
	more := *s
	more.entries = append(slices.Clip(s.entries), e)
	more.offered = append(slices.Clip(s.offered), e.offer())
	more.byName = maps.Clone(s.byName)
	more.byName[e.Definition.Name] = len(more.entries) - 1
	return &more
}

// Within returns the set with the tools that a key may use. The others do not exist in it.
func (s *Set) Within(a org.Access) *Set {
	if a.IsFull() || s.allAllowedBy(a) {
		return s
	}
	less := *s
	less.entries, less.offered, less.byName = nil, nil, map[string]int{}
	less.unlisted = maps.Clone(s.unlisted)
	maps.DeleteFunc(less.unlisted, func(_ string, e *Entry) bool { return !e.AllowedBy(a) })
	for i, e := range s.entries {
		if e.AllowedBy(a) {
			less.byName[e.Definition.Name] = len(less.entries)
			less.entries = append(less.entries, e)
			less.offered = append(less.offered, s.offered[i])
		}
	}
	return &less
}

func (s *Set) allAllowedBy(a org.Access) bool {
	for _, e := range s.unlisted {
		if !e.AllowedBy(a) {
			return false
		}
	}
	return !slices.ContainsFunc(s.entries, func(e Entry) bool { return !e.AllowedBy(a) })
}

// Of returns the definitions of the server's tools that the set offers, with the names that
// the server gives them.
func (s *Set) Of(server string) []tool.Definition {
	out := []tool.Definition{}
	for _, e := range s.entries {
		if e.Server == server {
			out = append(out, renamed(e.Definition, e.Tool.Definition().Name))
		}
	}
	return out
}

// Called returns the names under which the model sees the server's tool, or all its tools
// if name is "".
func (s *Set) Called(server, name string) []string {
	var out []string
	for _, e := range s.entries {
		if e.Server == server && (name == "" || e.Tool.Definition().Name == name) {
			out = append(out, e.Definition.Name)
		}
	}
	return out
}

// Choice returns the name under which the model sees the server's tool, or, if it has several forms, the first that the server lists.
// "" = the set does not offer it.
func (s *Set) Choice(server, name string) string {
	for _, e := range s.entries {
		if e.Server == server && e.Tool.Definition().Name == name && !e.again {
			return e.Definition.Name
		}
	}
	return ""
}

// Names returns the names of the tools, sorted.
func (s *Set) Names() []string {
	names := make([]string, len(s.entries))
	for i, e := range s.entries {
		names[i] = e.Definition.Name
	}
	return names
}

// assemble makes a set of what the servers listed.
func assemble(servers []Server, lists []*listing, log *slog.Logger) *Set {
	set := &Set{byName: map[string]int{}, unlisted: map[string]*Entry{}, withheld: map[string]string{}, lists: map[string]*listing{}}
	taken := map[string]place{}
	for i, server := range servers {
		set.lists[server.Name] = lists[i]
		found := loop.Server{Label: server.Name, Required: server.Required, Shown: server.Shown, FromRequest: server.FromRequest}
		if err := lists[i].err; err != nil {
			found.Error = err.Error()
		} else {
			found.Tools = set.add(server, lists[i], taken, log.With("server", server.Name))
		}
		set.Servers = append(set.Servers, found)
	}
	set.sort()
	return set
}

// place is where a tool of a set is from.
type place struct {
	server string
	list   *listing
}

// collision is a tool that a set left out. list is the later one of the two lists that
// collide: when either is renewed, the collision is told again.
type collision struct {
	loop.Collision
	list *listing
}

func collide(name string, first, second place) collision {
	later := first.list
	if second.list.number > later.number {
		later = second.list
	}
	return collision{loop.Collision{Tool: name, Server: second.server, KeptFrom: first.server}, later}
}

// The bounds on the tools of one run: each model call of the run sends all of
// them. Servers fill them in the order of the configuration.
const (
	MaxTools = 128
	MaxBytes = 2 << 20 // of names, titles, descriptions and schemas together
)

// add takes one server's tools and returns how many it took.
func (s *Set) add(server Server, list *listing, taken map[string]place, log *slog.Logger) int {
	added, beyond := 0, 0
	says := report{log: log}
	here := place{server.Name, list}
	isTaken := func(name string) bool { _, ok := taken[name]; return ok }
	forms, seen := list.haveForms(), map[string]bool{}
	for _, u := range list.tools {
		original := u.definition.Name
		offered, executed := server.listed(u, forms)
		if !executed || !server.exists(u) {
			continue
		}
		name := server.name(original)
		if u.form != nil {
			name = u.form.As
		}
		if !server.offers(u.definition) {
			s.withheld[name] = server.Name
			continue
		}
		if !offered {
			s.unlisted[name] = new(newEntry(server, u, name))
			continue
		}
		if isTaken(name) && server.Shown {
			name = server.second(original, isTaken)
		}
		if first, ok := taken[name]; ok {
			s.collided(collide(name, first, here), &says)
			continue
		}
		def := renamed(u.definition, name)
		if !s.hasRoom(def) {
			beyond++
			continue
		}
		taken[name] = here
		e := newEntry(server, u, name)
		e.again, seen[original] = seen[original], true
		s.entries = append(s.entries, e)
		s.bytes += size(def)
		added++
	}
	says.end()
	list.checkApproval(server, log)
	list.checkNames(server, log)
	if beyond > 0 && !list.full.Swap(true) {
		log.Warn("mcp_too_many_tools", "left_out", beyond, "limit", MaxTools, "limit_bytes", MaxBytes)
	}
	return added
}

// collided remembers a collision, and logs one that was not logged.
func (s *Set) collided(c collision, says *report) {
	if c.list.logged.first(c.Collision) {
		says.tool("mcp_tool_name_collision", c.Tool, "kept_from", c.KeptFrom)
	}
	if len(s.collisions) < MaxCollisions {
		s.collisions = append(s.collisions, c)
	}
}

// hasRoom reports whether one more tool is within the bounds of a run.
func (s *Set) hasRoom(d tool.Definition) bool {
	return len(s.entries) < MaxTools && s.bytes+size(d) <= MaxBytes
}

func size(d tool.Definition) int {
	return len(d.Name) + len(d.Title) + len(d.Description) + len(d.InputSchema)
}

// NewEntry returns the entry of a tool of the gateway itself. It returns an error if the
// schema is invalid.
func newOwnEntry(t tool.Tool) (Entry, error) {
	def := t.Definition()
	compiled, err := schema.Compile(def.InputSchema)
	if err != nil {
		return Entry{}, fmt.Errorf("tool %s: schema: %w", def.Name, err)
	}
	e := newEntry(Server{Name: "turnpike"}, usable{tool: t, definition: def, schema: compiled, digest: digest(def)}, def.Name)
	e.Cacheable, e.own = false, true // what it answers is about its run
	return e, nil
}

// newEntry returns the entry of a server's tool that the model sees under this name.
func newEntry(server Server, u usable, name string) Entry {
	original, class, def := u.definition, tool.ClassOf(u.tool), renamed(u.definition, name)
	if u.name != name {
		u.digest = digest(def)
	}
	return Entry{
		Definition: def, Name: original.Name, Server: server.Name, Tool: u.tool, Schema: u.schema, Class: class,
		Polling: slices.Contains(server.Polling, original.Name), Cacheable: server.reuses(original.Name, def.Annotations, class),
		Digest: u.digest, Origin: server.Origin, Place: server.placeOf(original.Name), kind: kindOf(server, original.Name), FromRequest: server.FromRequest, Price: priceOf(server, original.Name, u.tool),
	}
}

// priceOf returns what a call of the server's tool costs: as the settings of the server say, or else as the
// tool does; nil = neither says.
func priceOf(server Server, name string, t tool.Tool) *money.Nano {
	if price := server.priceOf(name); price != nil {
		return price
	}
	if priced, ok := t.(tool.Priced); ok {
		return new(money.Nano(priced.Cost().Nano()))
	}
	return nil
}

func renamed(d tool.Definition, name string) tool.Definition {
	d.Name = name
	return d
}

// digest returns a hash of the definition.
func digest(d tool.Definition) string {
	text, _ := json.Marshal(d) // strings and raw JSON that compiled: cannot fail
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// offer returns the tool as models see it: with its schema in the normal form. Arguments are
// checked against the schema that the server listed.
func (e *Entry) offer() model.Tool {
	def := e.Definition
	def.InputSchema = schema.NormalArguments(def.InputSchema)
	return model.Tool{Definition: def}
}

// sort sorts the tools by kind, then by name. The same tools then always give the same bytes, whichever
// server answered first, so that providers can cache the prompt.
func (s *Set) sort() {
	slices.SortFunc(s.entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.Definition.Name, b.Definition.Name))
	})
	for i, e := range s.entries {
		s.byName[e.Definition.Name] = i
		s.offered = append(s.offered, e.offer())
		delete(s.withheld, e.Definition.Name)
	}
}
