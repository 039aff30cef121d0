package mcpserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/settings"
	"github.com/turnpike-gateway/turnpike/tool"
)

// resultMaxBytes is the most bytes of a result's text, unless the org has another limit.
const resultMaxBytes = 65_536

// policy returns the settings of a call, as for a run of the key.
func (h *Handler) policy(caller caller.Caller) loop.Policy {
	asked := settings.Request{Key: caller.Principal.ID, KeyAccess: caller.Principal.Access}
	for _, s := range caller.Servers {
		asked.Servers = append(asked.Servers, settings.Server{Name: s.Name, Approval: s.Approval, ApprovalTimeout: s.ApprovalTimeout, Trust: s.Trust})
	}
	return settings.Resolve(settings.Operator{MaxRoundsCap: h.o.MaxRoundsCap()}, caller.Org.Runtime, settings.Defaults{ResultMaxBytes: resultMaxBytes}, asked)
}

// tools returns the tools that the key may use now.
func (h *Handler) tools(ctx context.Context, caller caller.Caller, p loop.Policy) (*catalog.Set, error) {
	var servers []catalog.Server
	if caller.Org.MCPOutbound {
		servers = caller.Servers
	}
	set, err := h.o.Catalog.For(ctx, caller.Org.ID, servers, time.Duration(p.CatalogTTLNS))
	if err != nil {
		return nil, err
	}
	set = set.Within(caller.Principal.Access)
	if h.o.Tools == nil {
		return set, nil
	}
	own, err := ownTools(ctx, h.o.Tools, caller)
	if err != nil {
		return nil, fmt.Errorf("the tools of the program: %w", err)
	}
	return set.WithProgram(own, caller.Principal.Access)
}

// ownTools returns the tools of the program. A provider is asked for all: the lists of the key
// are applied to their names.
func ownTools(ctx context.Context, source tool.Source, caller caller.Caller) ([]tool.Tool, error) {
	if p, ok := source.(tool.Provider); ok {
		return p.Tools(tool.Caller{ID: caller.Principal.ID, Org: caller.Org.ID, Permissions: []string{"*"}}), nil
	}
	return source.List(ctx)
}

// list answers tools/list.
func (h *Handler) list(ctx context.Context, one *request) (*mcp.ListToolsResult, error) {
	ctx, cancel := until(ctx, one.ctx)
	defer cancel()
	set, err := h.tools(ctx, one.caller, h.policy(one.caller))
	if err != nil {
		return nil, err
	}
	if one.session != nil {
		one.session.lists(digest(set))
	}
	out := &mcp.ListToolsResult{Tools: []*mcp.Tool{}, Cacheable: mcp.Cacheable{CacheScope: "private"}}
	for e := range set.All() {
		out.Tools = append(out.Tools, wireTool(e))
	}
	return out, nil
}

// listed notes the list as it is now: the client hears what changes after it.
func (h *Handler) listed(ctx context.Context, one *request) error {
	set, err := h.tools(ctx, one.caller, h.policy(one.caller))
	if err == nil {
		one.session.lists(digest(set))
	}
	return err
}

// digest identifies what tools/list shows of a set.
func digest(set *catalog.Set) string {
	sum := sha256.New()
	for e := range set.All() {
		fmt.Fprintf(sum, "%s\x00%s\x00%s\x00", e.Definition.Name, e.Digest, e.Class)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// wireTool returns a tool as clients see it. That it only reads, or that it may be repeated, is said
// only if the gateway believes it: clients may call such tools without asking anybody.
func wireTool(e *catalog.Entry) *mcp.Tool {
	d := e.Definition
	return &mcp.Tool{
		Name: d.Name, Title: d.Title, Description: d.Description, InputSchema: d.InputSchema,
		Annotations: &mcp.ToolAnnotations{
			ReadOnlyHint: e.Class == tool.Read, IdempotentHint: e.Class.Repeatable(),
			DestructiveHint: d.Annotations.Destructive, OpenWorldHint: d.Annotations.OpenWorld,
		},
	}
}

// refreshPause is the time between two comparisons of an org's lists.
const refreshPause = time.Second

// refreshTimeout is how long the servers of an org may take to list their tools.
const refreshTimeout = time.Minute

// Changed tells the sessions of an org whose list of tools differs from what they were sent, and
// ends those whose key is not valid any more. It is called after a change has taken effect, and
// does not block.
func (h *Handler) Changed(orgID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, running := h.fresh[orgID]; running || h.closed {
		if running {
			h.fresh[orgID] = true
		}
		return
	}
	if len(h.sessions.all(orgID)) == 0 {
		return
	}
	h.fresh[orgID] = false
	h.tasks.Go(func() { h.refreshAll(orgID) })
}

// refreshAll compares the lists of an org until none has changed meanwhile.
func (h *Handler) refreshAll(orgID string) {
	for {
		h.refresh(orgID)
		h.mu.Lock()
		if !h.fresh[orgID] {
			delete(h.fresh, orgID)
			h.mu.Unlock()
			return
		}
		h.fresh[orgID] = false
		h.mu.Unlock()
		select {
		case <-time.After(refreshPause):
		case <-h.open.Done():
		}
	}
}

// refresh compares the lists of an org once.
func (h *Handler) refresh(orgID string) {
	ctx, cancel := context.WithTimeout(h.open, refreshTimeout)
	defer cancel()
	digests := map[string]string{} // by principal; "" = not known
	for _, s := range h.sessions.all(orgID) {
		now, known := digests[s.principal]
		if !known {
			caller, ok := h.o.Orgs.Caller(orgID, s.principal)
			if !ok {
				h.sessions.remove(s)
				s.end()
				continue
			}
			set, err := h.tools(ctx, caller, h.policy(caller))
			if err == nil {
				now = digest(set)
			} else if h.open.Err() == nil {
				h.o.Log.Warn("mcp_list_changed: the tools of an org could not be compared", "org", orgID, "error", err)
			}
			digests[s.principal] = now
		}
		if now != "" && s.differs(now) {
			s.notify()
		}
	}
}
