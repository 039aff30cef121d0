package mcptool

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Limits of one discovery, for servers whose list does not end. The total size of the pages is
// limited like one answer.
const (
	maxPages      = 50
	maxTools      = 500
	maxDefinition = 128 << 10 // bytes of one tool; a schema may have half of it
	maxListed     = 2 << 20   // bytes of all tools that are kept
	maxLeftOut    = 100       // entries in Report.LeftOut
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

// keep adds a tool. If the tool is too large, keep returns the reason.
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

// List returns the server's tools in its order. It reads at most 50 pages with a total of
// 16 MiB, and returns at most 500 tools with a total of 2 MiB. Further tools are left out with
// a warning. Tools without a name are left out. A tool whose schema is missing, null or not an
// object is returned with that schema (nil, or the bytes); the catalogue refuses it.
//
// An error that wraps [tool.Blocked] is a refusal by the outbound policy.
func (c *Client) List(ctx context.Context) ([]tool.Tool, error) {
	limited, cancel := context.WithTimeout(ctx, c.server.Timeout)
	defer cancel()
	_, found, err := c.discover(ctx, limited)
	return found.tools, err
}

// Report is the result of [Client.Check]. Its texts come from the server.
type Report struct {
	Transport     Transport
	Protocol      string // the protocol revision; "" without a session
	ServerName    string // "" = the server has not sent it
	ServerVersion string

	// Tools are the definitions that [Client.List] returns. Their schemas are not checked.
	Tools []tool.Definition

	// LeftOut are the entries of the server's list that List leaves out.
	LeftOut []LeftOut
}

// LeftOut is an entry of a server's list of tools that cannot be used.
type LeftOut struct {
	Name   string // "" = the entry has none
	Reason string
}

// Check connects, if there is no session, and lists the tools. Errors are those of
// [Client.List].
func (c *Client) Check(ctx context.Context) (Report, error) {
	limited, cancel := context.WithTimeout(ctx, c.server.Timeout)
	defer cancel()
	s, found, err := c.discover(ctx, limited)
	if err != nil {
		return Report{}, err
	}
	r := Report{Transport: s.transport, Protocol: s.protocol(), LeftOut: found.leftOut}
	if s.sdk != nil && s.sdk.InitializeResult().ServerInfo != nil {
		info := s.sdk.InitializeResult().ServerInfo
		r.ServerName, r.ServerVersion = info.Name, info.Version
	}
	for _, t := range found.tools {
		r.Tools = append(r.Tools, t.Definition())
	}
	return r, nil
}

// discover lists the tools and returns the session that was used. limited is ctx with the
// timeout of the server.
func (c *Client) discover(ctx, limited context.Context) (by *session, found listing, err error) {
	o := c.do(limited, true, func(s *session) outcome {
		var o outcome
		by = s
		found, o = c.pages(limited, s)
		return o
	})
	if !o.failed() && o.rpc == nil {
		c.noteTools(found.tools)
		return by, found, nil
	}
	if ctx.Err() == nil { // otherwise the caller has gone, which is not a failure of the server
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
		if ok && asksForHeaders(d.InputSchema) && jsonscan.Depth(d.InputSchema) <= maxSchemaDepth {
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

// decodeDefinition decodes one tool of a list. It decodes each field separately, so an invalid
// field does not affect the others. ok is false only for a tool without a name. The schema keeps
// the server's bytes.
func decodeDefinition(raw json.RawMessage) (d tool.Definition, ok bool) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return tool.Definition{}, false
	}
	d = tool.Definition{
		Name:        read[string](fields["name"]),
		Title:       read[string](fields["title"]),
		Description: read[string](fields["description"]),
		InputSchema: fields["inputSchema"],
	}
	hints := read[map[string]json.RawMessage](fields["annotations"])
	if d.Title == "" {
		d.Title = read[string](hints["title"])
	}
	d.Annotations = tool.Annotations{
		ReadOnly:    read[*bool](hints["readOnlyHint"]),
		Destructive: read[*bool](hints["destructiveHint"]),
		Idempotent:  read[*bool](hints["idempotentHint"]),
		OpenWorld:   read[*bool](hints["openWorldHint"]),
	}
	return d, d.Name != ""
}

// read decodes a value. It returns the zero value if the value has another type.
func read[T any](raw json.RawMessage) T {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		var zero T
		return zero
	}
	return v
}
