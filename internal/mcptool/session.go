package mcptool

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The methods that the client sends.
const (
	methodInitialize = "initialize"
	methodDiscover   = "server/discover"
	methodList       = "tools/list"
	methodCall       = "tools/call"
	methodListen     = "subscriptions/listen"
	methodCancelled  = "notifications/cancelled"
)

// Protocol revisions that need different code.
const (
	sessionVersion   = "2025-11-25" // the last with initialize
	statelessVersion = "2026-07-28" // the first without sessions
)

// errSessionLost is the error of a request whose session had already ended.
var errSessionLost = errors.New("session lost")

// session is a session of the SDK. For a server without initialize it is only a way to send
// requests.
type session struct {
	transport     Transport
	sdk           *mcp.ClientSession // nil for a server without initialize
	posts         *poster            // of HTTP; else nil
	link          *link              // of legacy SSE and stdio; else nil
	stopListening func()             // ends the stream of notifications; nil = there is none

	worked  atomic.Bool // a request had a result
	doubted atomic.Bool // the server may not know the session any more; see [Client.judge]

	mu       sync.Mutex // guards what follows
	closing  bool
	posting  sync.WaitGroup  // calls of posts in progress
	mirrored map[string]bool // the tools whose arguments the SDK repeats in headers
}

// protocol returns the protocol revision; "" without a session of the SDK.
func (s *session) protocol() string {
	if s.sdk == nil {
		return ""
	}
	return s.sdk.InitializeResult().ProtocolVersion
}

// id returns the id that the server gave the session, "" if it gave none.
func (s *session) id() string {
	if s.sdk == nil {
		return ""
	}
	return s.sdk.ID()
}

// announcesChanges reports whether the server sends notifications when its tools change.
func (s *session) announcesChanges() bool {
	if s.sdk == nil {
		return false
	}
	can := s.sdk.InitializeResult().Capabilities
	return can != nil && can.Tools != nil && can.Tools.ListChanged
}

// list requests one page of tools. accepted has the names of the tools that the SDK accepts:
// it refuses tools whose x-mcp-header is invalid. It is nil if arguments are not repeated in
// headers.
func (s *session) list(ctx context.Context, cursor string) (o outcome, accepted map[string]bool) {
	if s.sdk == nil {
		return s.posts.list(ctx, cursor), nil
	}
	x := &exchange{}
	page, err := s.sdk.ListTools(withExchange(ctx, x), &mcp.ListToolsParams{Cursor: cursor})
	if err == nil && s.link == nil {
		accepted = make(map[string]bool, len(page.Tools))
		for _, t := range page.Tools {
			accepted[t.Name] = true
		}
		s.mirror(accepted)
	}
	return x.finish(lost(err)), accepted
}

// metaKey is the member of _meta that carries the idempotency key of a call.
const metaKey = "turnpike/idempotencyKey"

// call calls a tool. writes is false for a tool that only reads.
func (s *session) call(ctx context.Context, p callParams, writes bool) outcome {
	x := &exchange{key: p.key, writes: writes, memory: p.memory}
	p.Meta = meta(p.key)
	if p.tracer != nil {
		p.tracer.CallSent(ctx, s.id(), s.protocol(), s.transport == Stdio)
		p.Meta = addTrace(p.Meta, p.tracer.Trace(ctx))
	}
	if s.posts != nil && !s.mirrors(p.Name) {
		if !s.beginPost() {
			return x.finish(errSessionLost)
		}
		defer s.posting.Done()
		return s.posts.call(ctx, x, p)
	}
	_, err := s.sdk.CallTool(withExchange(ctx, x), &mcp.CallToolParams{Meta: p.Meta, Name: p.Name, Arguments: p.Arguments})
	return x.finish(lost(err))
}

// beginPost counts a call in progress, for which the caller must call posting.Done. It returns
// false if the session is being closed.
func (s *session) beginPost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.posting.Add(1)
	}
	return !s.closing
}

// mirror notes listed tools that ask for arguments in headers, which revision 2026-07-28 defines.
func (s *session) mirror(tools map[string]bool) {
	if len(tools) == 0 || s.protocol() < statelessVersion {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mirrored == nil {
		s.mirrored = map[string]bool{}
	}
	maps.Copy(s.mirrored, tools)
}

// mirrors reports whether the SDK must send the calls of a tool.
func (s *session) mirrors(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mirrored[name]
}

// meta returns a new map: the SDK adds to it.
func meta(key string) mcp.Meta {
	if key == "" {
		return nil
	}
	return mcp.Meta{metaKey: key}
}

// addTrace adds the trace context to the members of _meta.
func addTrace(m mcp.Meta, trace map[string]string) mcp.Meta {
	if len(trace) > 0 && m == nil {
		m = mcp.Meta{}
	}
	for name, value := range trace {
		m[name] = value
	}
	return m
}

// close ends the session after the requests in progress.
func (s *session) close() {
	if s.stopListening != nil {
		s.stopListening()
	}
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.posting.Wait()
	if s.sdk != nil {
		_ = s.sdk.Close() // the session is over, whatever the server answers
	}
}

// lost returns err as an errSessionLost if the session had ended before the request.
func lost(err error) error {
	if errors.Is(err, mcp.ErrConnectionClosed) {
		return errors.Join(errSessionLost, err)
	}
	return err
}
