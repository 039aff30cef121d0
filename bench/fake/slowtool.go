package fake

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ToolCall is one entry of the slow tool's ledger. Times are Unix nanoseconds
// of the tool's own clock, taken inside the handler.
type ToolCall struct {
	ID    int   `json:"id"`
	Start int64 `json:"start"`
	End   int64 `json:"end"`
}

type slowArgs struct {
	MS int `json:"ms" jsonschema:"how long to sleep, in milliseconds"`
	ID int `json:"id" jsonschema:"the call's number, repeated by the result"`
}

// SlowTool returns an MCP server over streamable HTTP, at /mcp, with one tool,
// [ToolName], that sleeps. It is annotated as read-only.
//
// POST /ledger hands over the calls it has finished ([]ToolCall) and forgets them.
func SlowTool() http.Handler {
	var seen Ledger[ToolCall]
	srv := mcp.NewServer(&mcp.Implementation{Name: "turnpike-bench", Version: "1"}, nil)
	mcp.AddTool(srv, &mcp.Tool{
		Name:        ToolName,
		Description: "Sleeps for a while.",
		Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true},
	}, func(ctx context.Context, _ *mcp.CallToolRequest, args slowArgs) (*mcp.CallToolResult, any, error) {
		start := time.Now()
		if err := sleep(ctx, time.Duration(args.MS)*time.Millisecond); err != nil {
			return nil, nil, err
		}
		seen.Add(ToolCall{args.ID, start.UnixNano(), time.Now().UnixNano()})
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: Result(args.ID)}}}, nil, nil
	})
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return srv }, nil))
	mux.Handle("POST /ledger", &seen)
	return mux
}

func sleep(ctx context.Context, d time.Duration) error {
	if d < 0 || d > maxLatency {
		return fmt.Errorf("cannot sleep for %v", d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
