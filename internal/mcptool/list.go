package mcptool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/turnpike-gateway/turnpike/tool"
)

// Limits of one discovery.
const (
	maxPages = 50
	maxTools = 500
)

// page is the result of tools/list, its tools as the server sent them.
type page struct {
	Tools      []json.RawMessage `json:"tools"`
	NextCursor string            `json:"nextCursor"`
}

// List returns the server's tools in its own order: all pages, at most 50 pages
// and 500 tools; what is beyond is left out with a warning. A tool without a
// name is left out too. A tool whose schema is missing, null or no object is
// returned with that schema (nil, or the bytes), for the catalogue to drop.
//
// An error is a failure of the server or the way to it; one that wraps
// [tool.Fatal] is a refusal of the outbound policy.
func (c *Client) List(ctx context.Context) ([]tool.Tool, error) {
	limited, cancel := context.WithTimeout(ctx, c.server.Timeout)
	defer cancel()
	var tools []tool.Tool
	o := c.do(limited, true, func(s *session) outcome {
		var o outcome
		tools, o = c.pages(limited, s)
		return o
	})
	if !o.failed() && o.rpc == nil {
		return tools, nil
	}
	return nil, fmt.Errorf("list tools: %w", c.failure(ctx, limited, o))
}

// pages reads the tools of all pages in session s. The outcome is the last
// page's.
func (c *Client) pages(ctx context.Context, s *session) ([]tool.Tool, outcome) {
	var tools []tool.Tool
	cursor, seen := "", map[string]bool{}
	for range maxPages {
		o, accepted := s.list(ctx, cursor)
		if o.failed() || o.rpc != nil {
			return nil, o
		}
		var p page
		if err := json.Unmarshal(o.result, &p); err != nil {
			o.result, o.err = nil, fmt.Errorf("%w: list of tools: %w", errMalformed, err)
			return nil, o
		}
		tools = c.appendTools(tools, p.Tools, accepted)
		switch {
		case p.NextCursor == "":
			return tools, o
		case len(tools) >= maxTools:
			c.log.Warn("mcp server has too many tools, the rest is left out", "limit", maxTools)
			return tools, o
		case seen[p.NextCursor]:
			c.log.Warn("mcp server repeats a cursor of its list of tools", "tools", len(tools))
			return tools, o
		}
		seen[p.NextCursor] = true
		cursor = p.NextCursor
	}
	c.log.Warn("mcp server has too many pages of tools, the rest is left out", "limit", maxPages)
	return tools, outcome{method: methodList, sent: true, result: json.RawMessage("{}")}
}

// appendTools adds the usable tools of one page.
func (c *Client) appendTools(tools []tool.Tool, raw []json.RawMessage, accepted map[string]bool) []tool.Tool {
	for i, r := range raw {
		if len(tools) >= maxTools {
			c.log.Warn("mcp server has too many tools, the rest is left out", "limit", maxTools, "left_out", len(raw)-i)
			return tools
		}
		d, ok := decodeDefinition(r)
		switch {
		case !ok:
			c.log.Warn("mcp_tool_unreadable", "position", i)
		case accepted != nil && asksForHeaders(d.InputSchema) && !accepted[d.Name]:
			c.log.Warn("mcp_tool_invalid_header_annotation", "tool", d.Name)
		default:
			tools = append(tools, &remote{client: c, definition: d, class: c.class(d)})
		}
	}
	return tools
}

// class returns how often calls of a tool may be executed.
func (c *Client) class(d tool.Definition) tool.Class {
	if c.server.Trust && d.Annotations.ReadOnly != nil && *d.Annotations.ReadOnly {
		return tool.Read
	}
	return tool.Once
}

// headerTools reduces a list of tools to what the SDK must know of it: those
// whose arguments are repeated in headers. The rest it could only stumble over.
func headerTools(result json.RawMessage) json.RawMessage {
	type definition struct {
		Name        string          `json:"name"`
		InputSchema json.RawMessage `json:"inputSchema"`
	}
	seen := struct {
		Tools []definition `json:"tools"`
	}{[]definition{}}
	var p page
	_ = json.Unmarshal(result, &p) // a list that is none is reported by its reader
	for _, raw := range p.Tools {
		d, ok := decodeDefinition(raw)
		if ok && asksForHeaders(d.InputSchema) && depth(d.InputSchema) <= maxSchemaDepth {
			seen.Tools = append(seen.Tools, definition{d.Name, d.InputSchema})
		}
	}
	return encode(seen)
}

// maxSchemaDepth bounds the schemas that the SDK gets to see.
const maxSchemaDepth = 64

// asksForHeaders reports whether a schema has the annotation by which revision
// 2026-07-28 wants arguments repeated in HTTP headers.
func asksForHeaders(schema json.RawMessage) bool {
	return bytes.Contains(schema, []byte(`"x-mcp-header"`)) && schema[0] == '{'
}

// depth returns how deep valid JSON nests.
func depth(data []byte) int {
	deepest, open, quoted := 0, 0, false
	for i := 0; i < len(data); i++ {
		switch b := data[i]; {
		case quoted && b == '\\':
			i++
		case b == '"':
			quoted = !quoted
		case quoted:
		case b == '{' || b == '[':
			open++
			deepest = max(deepest, open)
		case b == '}' || b == ']':
			open--
		}
	}
	return deepest
}
