package catalog

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/spelling"
	"github.com/turnpike-gateway/turnpike/tool"
)

// listing is what one server listed: its valid tools in its order, or why there is no list.
// It depends on the server alone, not on the other servers of a run.
type listing struct {
	requested
	number uint64 // a later listing has a higher one
	tools  []usable
	bytes  int      // of their definitions
	unfit  []string // the names of the invalid tools, which are left out
	err    error

	// What was told of the sets with these tools. It is told once, also if sets are
	// assembled again.
	logged, recorded told
	full             atomic.Bool // that a run has no room for all tools
	unmatched        atomic.Bool // that the approval rules name a tool which is not there
	misnamed         atomic.Bool // that another setting does
}

// requested says when a list was requested. The zero value is never out of date.
type requested struct {
	of      tool.Announcer // nil = the server announces no changes
	changes uint64         // that it had announced
}

// requestOf returns that a list of the source is requested now.
func requestOf(s tool.Source) requested {
	a, ok := s.(tool.Announcer)
	if !ok {
		return requested{}
	}
	return requested{a, a.Changes()}
}

// outdated reports whether the server has announced a change since.
func (r requested) outdated() bool { return r.of != nil && r.of.Changes() != r.changes }

// has reports whether the server has listed a valid tool of that name.
func (l *listing) has(name string) bool {
	return l != nil && slices.ContainsFunc(l.tools, func(u usable) bool { return u.definition.Name == name })
}

// checkApproval logs once that approval rules of the server name tools that it does not have.
func (l *listing) checkApproval(server Server, log *slog.Logger) {
	names := server.Approval.Unmatched(l.has)
	if len(names) > 0 && !l.unmatched.Swap(true) {
		log.Warn("mcp_approval_rule_unmatched", "tools", names,
			"effect", "calls of all tools that no rule names need approval, unless the tool is known to only read")
	}
}

// checkNames logs once which names in the settings of the server none of its tools has.
func (l *listing) checkNames(server Server, log *slog.Logger) {
	listed := slices.Clone(l.unfit)
	for _, u := range l.tools {
		listed = append(listed, u.definition.Name)
	}
	unmatched := org.Unmatched(server.Named, func(name string) bool { return slices.Contains(listed, name) })
	if len(unmatched) == 0 || l.misnamed.Swap(true) {
		return
	}
	says := report{log: log}
	for _, setting := range unmatched {
		for _, name := range setting.Names {
			says.tool("mcp_tool_name_unmatched", name, "setting", setting.Setting, "nearest", spelling.Nearest(name, listed))
		}
	}
	says.end()
}

// examineAll returns the listing of the tools that a server listed, without the invalid
// ones, and logs what was left out or changed.
func examineAll(server Server, tools []tool.Tool, log *slog.Logger) *listing {
	l := new(listing)
	says := report{log: log}
	for _, t := range tools {
		u, err := examine(t.Definition())
		var refused *Refusal
		if errors.As(err, &refused) {
			l.unfit = append(l.unfit, t.Definition().Name)
			says.tool(refused.Code, t.Definition().Name, "reason", refused.Reason)
			continue
		}
		original := u.definition
		u.tool, u.name = t, server.name(original.Name)
		if f, is := t.(Form); is {
			u.tool, u.name, u.form = f.Tool, f.As, &f
		}
		u.digest = digest(renamed(original, u.name))
		l.tools = append(l.tools, u)
		l.bytes += size(original)
		if server.offers(original) {
			says.examined(u.name, u)
		}
	}
	says.end()
	if len(l.tools) == 0 {
		log.Warn("mcp_server_no_valid_tools", "listed", len(tools))
	}
	return l
}

// maxTold is how many collisions a listing remembers. Further ones are not told.
const maxTold = 16 * MaxCollisions

// told is a set of collisions. The zero value is empty.
type told struct {
	mu   sync.Mutex
	seen map[loop.Collision]bool
}

// first reports whether it is called with c for the first time.
func (t *told) first(c loop.Collision) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen[c] || len(t.seen) == maxTold {
		return false
	}
	if t.seen == nil {
		t.seen = map[loop.Collision]bool{}
	}
	t.seen[c] = true
	return true
}
