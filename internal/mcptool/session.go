package mcptool

import (
	"context"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The methods that we send.
const (
	methodInitialize = "initialize"
	methodDiscover   = "server/discover"
	methodList       = "tools/list"
	methodCall       = "tools/call"
	methodListen     = "subscriptions/listen"
	methodCancelled  = "notifications/cancelled"
)

// Protocol revisions that make a difference here.
const (
	sessionVersion   = "2025-11-25" // the last one that begins with initialize
	statelessVersion = "2026-07-28" // the first one without sessions
)

// errSessionLost says that a request met a session that had already ended.
var errSessionLost = errors.New("session lost")

// session is one way to talk to the server: a session of the SDK, or none at all
// with a server that knows no initialize.
type session struct {
	transport Transport
	sdk       *mcp.ClientSession // nil for a bare server
	bare      *bare
	link      *link  // the one stream of legacy SSE and stdio; else nil
	deafen    func() // ends the stream of notifications, where one is kept; else nil
}

// protocol returns the revision that is spoken, "" without a session.
func (s *session) protocol() string {
	if s.sdk == nil {
		return ""
	}
	return s.sdk.InitializeResult().ProtocolVersion
}

// announcesChanges reports that the server says when its tools change.
func (s *session) announcesChanges() bool {
	if s.sdk == nil {
		return false
	}
	can := s.sdk.InitializeResult().Capabilities
	return can != nil && can.Tools != nil && can.Tools.ListChanged
}

// list asks for one page of tools. accepted names the tools among those with
// x-mcp-header that are usable; it is nil where arguments are never repeated in
// headers.
func (s *session) list(ctx context.Context, cursor string) (o outcome, accepted map[string]bool) {
	if s.bare != nil {
		return s.bare.post(ctx, methodList, listParams{cursor}), nil
	}
	x := &exchange{}
	page, err := s.sdk.ListTools(withExchange(ctx, x), &mcp.ListToolsParams{Cursor: cursor})
	if err == nil && s.link == nil {
		accepted = make(map[string]bool, len(page.Tools))
		for _, t := range page.Tools {
			accepted[t.Name] = true
		}
	}
	return x.finish(lost(err)), accepted
}

// metaKey is the member of _meta that carries the idempotency key of a call.
const metaKey = "turnpike/idempotencyKey"

// call asks the server to execute a tool. writes says that the tool does not
// only read.
func (s *session) call(ctx context.Context, p callParams, writes bool) outcome {
	x := &exchange{key: p.key, writes: writes, memory: p.memory}
	ctx = withExchange(ctx, x)
	p.Meta = meta(p.key)
	if s.bare != nil {
		return s.bare.post(ctx, methodCall, p)
	}
	_, err := s.sdk.CallTool(ctx, &mcp.CallToolParams{Meta: p.Meta, Name: p.Name, Arguments: p.Arguments})
	return x.finish(lost(err))
}

// meta returns a map of its own for each request: the SDK adds to it.
func meta(key string) mcp.Meta {
	if key == "" {
		return nil
	}
	return mcp.Meta{metaKey: key}
}

// close ends the session after the requests under way.
func (s *session) close() {
	if s.deafen != nil {
		s.deafen()
	}
	if s.sdk != nil {
		_ = s.sdk.Close() // the server need not agree that the session is over
	}
}

// lost marks an error of a session that had ended before the request.
func lost(err error) error {
	if errors.Is(err, mcp.ErrConnectionClosed) {
		return errors.Join(errSessionLost, err)
	}
	return err
}
