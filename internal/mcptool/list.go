package mcptool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/tool"
)

// Limits of one discovery. A server that lists without end costs at most this much
// memory and this many requests. The pages together may be as long as one answer.
const (
	maxPages      = 50
	maxTools      = 500
	maxDefinition = 128 << 10 // bytes of one tool: twice what a schema may have
	maxListed     = 2 << 20   // bytes of all tools that are kept
	maxLeftOut    = 100       // entries that are remembered for being left out
)

// page is the result of tools/list, its tools as the server sent them.
type page struct {
	Tools      []json.RawMessage `json:"tools"`
	NextCursor string            `json:"nextCursor"`
}

// listing is what one discovery found.
type listing struct {
	tools   []tool.Tool
	bytes   int // of their definitions
	leftOut []LeftOut
}

func (l *listing) leave(name, reason string) {
	if len(l.leftOut) < maxLeftOut {
		l.leftOut = append(l.leftOut, LeftOut{name, reason})
	}
}

// keep adds a tool, unless it is too large; it says why it did not.
func (l *listing) keep(r *remote, bytes int) (why string) {
	switch {
	case bytes > maxDefinition:
		return fmt.Sprintf("its definition is larger than %d bytes", maxDefinition)
	case l.bytes+bytes > maxListed:
		return fmt.Sprintf("the server's definitions are larger than %d bytes together", maxListed)
	}
	l.bytes += bytes
	l.tools = append(l.tools, r)
	return ""
}

// List returns the server's tools in its own order: all pages, at most 50 pages
// of 16 MiB together, and 500 tools of 2 MiB together; what is beyond is left out
// with a warning. A tool without a name is left out too. A tool whose schema is
// missing, null or no object is returned with that schema (nil, or the bytes), for
// the catalogue to drop.
//
// An error is a failure of the server or the way to it; one that wraps
// [tool.Fatal] is a refusal of the outbound policy.
func (c *Client) List(ctx context.Context) ([]tool.Tool, error) {
	limited, cancel := context.WithTimeout(ctx, c.server.Timeout)
	defer cancel()
	_, found, err := c.discover(ctx, limited)
	return found.tools, err
}

// discover lists the tools and returns the session that did it. limited is ctx
// with our timeout.
func (c *Client) discover(ctx, limited context.Context) (by *session, found listing, err error) {
	o := c.do(limited, true, func(s *session) outcome {
		var o outcome
		by = s
		found, o = c.pages(limited, s)
		return o
	})
	if !o.failed() && o.rpc == nil {
		c.noteTools(len(found.tools))
		return by, found, nil
	}
	if ctx.Err() == nil { // a caller that left says nothing about the server
		c.noteFailure(c.describe(limited, o))
	}
	return nil, listing{}, fmt.Errorf("list tools: %w", c.failure(ctx, limited, o))
}

// pages reads the tools of all pages in session s. The outcome is the last
// page's.
func (c *Client) pages(ctx context.Context, s *session) (listing, outcome) {
	var found listing
	cursor, seen, bytes := "", map[string]bool{}, 0
	for range maxPages {
		o, accepted := s.list(ctx, cursor)
		if o.failed() || o.rpc != nil {
			return listing{}, o
		}
		var p page
		if err := json.Unmarshal(o.result, &p); err != nil {
			o.result, o.err = nil, fmt.Errorf("%w: list of tools: %w", errMalformed, err)
			return listing{}, o
		}
		c.appendTools(&found, p.Tools, accepted)
		bytes += len(o.result)
		switch {
		case p.NextCursor == "":
			return found, o
		case len(found.tools) >= maxTools:
			c.log.Warn("mcp server has too many tools, the rest is left out", "limit", maxTools)
			return found, o
		case bytes >= maxAnswer:
			c.log.Warn("mcp server has too long a list of tools, the rest is left out", "limit_bytes", maxAnswer)
			return found, o
		case seen[p.NextCursor]:
			c.log.Warn("mcp server repeats a cursor of its list of tools", "tools", len(found.tools))
			return found, o
		}
		seen[p.NextCursor] = true
		cursor = p.NextCursor
	}
	c.log.Warn("mcp server has too many pages of tools, the rest is left out", "limit", maxPages)
	return found, outcome{method: methodList, sent: true, result: json.RawMessage("{}")}
}

// appendTools adds the usable tools of one page.
func (c *Client) appendTools(found *listing, raw []json.RawMessage, accepted map[string]bool) {
	nameless, large := 0, 0
	for i, r := range raw {
		if len(found.tools) >= maxTools {
			c.log.Warn("mcp server has too many tools, the rest is left out", "limit", maxTools, "left_out", len(raw)-i)
			found.leave("", fmt.Sprintf("%d tools beyond the limit of %d", len(raw)-i, maxTools))
			break
		}
		d, ok := decodeDefinition(r)
		switch {
		case !ok:
			nameless++
			found.leave("", fmt.Sprintf("entry %d of its page has no name", i))
		case accepted != nil && asksForHeaders(d.InputSchema) && !accepted[d.Name]:
			c.log.Warn("mcp_tool_invalid_header_annotation", "tool", shorten(d.Name))
			found.leave(shorten(d.Name), "its x-mcp-header annotations are invalid")
		default:
			why := found.keep(&remote{client: c, definition: d, class: c.class(d)}, len(r))
			if why != "" {
				large++
				found.leave(shorten(d.Name), why)
			}
		}
	}
	if nameless > 0 {
		c.log.Warn("mcp_tool_unreadable", "left_out", nameless)
	}
	if large > 0 {
		c.log.Warn("mcp_tool_too_large", "left_out", large, "limit_bytes", maxDefinition, "limit_bytes_together", maxListed)
	}
}

// shorten bounds a name that is only shown.
func shorten(name string) string {
	const most = 128 // bytes, about
	if len(name) <= most {
		return name
	}
	return strings.ToValidUTF8(name[:most], "") + "…"
}

// class returns how often calls of a tool may be executed.
func (c *Client) class(d tool.Definition) tool.Class {
	switch {
	case c.server.Trust && d.Annotations.ReadOnly != nil && *d.Annotations.ReadOnly,
		slices.Contains(c.server.Reads, d.Name):
		return tool.Read
	case slices.Contains(c.server.Keyed, d.Name):
		return tool.Keyed
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
