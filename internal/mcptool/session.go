package mcptool

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The methods that we send.
const (
	methodInitialize = "initialize"
	methodDiscover   = "server/discover"
	methodList       = "tools/list"
	methodCall       = "tools/call"
)

// statelessVersion is the first protocol revision without sessions.
const statelessVersion = "2026-07-28"

// errSessionLost says that a request met a session that had already ended.
var errSessionLost = errors.New("session lost")

// session is one way to talk to the server: a session of the SDK, or none at all
// with a server that knows no initialize.
type session struct {
	sdk  *mcp.ClientSession // nil for a bare server
	bare *bare
}

// list asks for one page of tools. accepted names the tools among those with
// x-mcp-header that are usable; it is nil for a bare server, which has no such
// headers.
func (s *session) list(ctx context.Context, cursor string) (o outcome, accepted map[string]bool) {
	if s.bare != nil {
		return s.bare.post(ctx, methodList, listParams{cursor}), nil
	}
	x := &exchange{}
	page, err := s.sdk.ListTools(withExchange(ctx, x), &mcp.ListToolsParams{Cursor: cursor})
	if err == nil {
		accepted = make(map[string]bool, len(page.Tools))
		for _, t := range page.Tools {
			accepted[t.Name] = true
		}
	}
	return x.finish(lost(err)), accepted
}

// call asks the server to execute a tool.
func (s *session) call(ctx context.Context, name string, arguments json.RawMessage, key string) outcome {
	x := &exchange{key: key}
	ctx = withExchange(ctx, x)
	if s.bare != nil {
		return s.bare.post(ctx, methodCall, callParams{name, arguments})
	}
	_, err := s.sdk.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: arguments})
	return x.finish(lost(err))
}

// close ends the session after the requests under way.
func (s *session) close() {
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
