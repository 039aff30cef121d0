package turnpiketest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/tool"
)

// acceptable reports whether the SDK takes the tool: it wants a schema of type
// object. The others are only listed.
func (t Tool) acceptable() bool {
	var s struct {
		Type string `json:"type"`
	}
	return json.Unmarshal([]byte(t.schema()), &s) == nil && s.Type == "object"
}

// onTheWire is the tool as the SDK knows it. What a client sees of it stands in
// the list that listed makes.
func (t Tool) onTheWire() *mcp.Tool {
	return &mcp.Tool{Name: t.Name, InputSchema: json.RawMessage(t.schema())}
}

// hints are annotations in the words of MCP; what is not said is left out.
type hints struct {
	ReadOnly    *bool `json:"readOnlyHint,omitempty"`
	Destructive *bool `json:"destructiveHint,omitempty"`
	Idempotent  *bool `json:"idempotentHint,omitempty"`
	OpenWorld   *bool `json:"openWorldHint,omitempty"`
}

// listed makes the SDK list the tools as they are: also those that it would not
// take, and annotations that its types cannot say.
func (m *MCPServer) listed(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, r)
		list, ok := result.(*mcp.ListToolsResult)
		if err != nil || !ok {
			return result, err
		}
		return &wholeList{list, m.definitions()}, nil
	}
}

// wholeList is a list of tools with members that the SDK's cannot have.
type wholeList struct {
	*mcp.ListToolsResult
	tools []json.RawMessage
}

// MarshalJSON implements [json.Marshaler].
func (l *wholeList) MarshalJSON() ([]byte, error) {
	plain, err := json.Marshal(l.ListToolsResult)
	if err != nil {
		return nil, err
	}
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(plain, &members); err != nil {
		return nil, err
	}
	if members["tools"], err = json.Marshal(l.tools); err != nil {
		return nil, err
	}
	delete(members, "nextCursor") // they are all there
	return json.Marshal(members)
}

// definitions are all tools in their order, as they stand in a list.
func (m *MCPServer) definitions() []json.RawMessage {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []json.RawMessage{}
	for _, t := range m.tools {
		d, _ := json.Marshal(struct { // strings and raw JSON
			Name        string          `json:"name"`
			Title       string          `json:"title,omitempty"`
			Description string          `json:"description,omitempty"`
			InputSchema json.RawMessage `json:"inputSchema,omitempty"`
			Annotations hints           `json:"annotations,omitzero"`
		}{t.Name, t.Title, t.Description, json.RawMessage(t.schema()), hints(t.Annotations)})
		out = append(out, d)
	}
	return out
}

// newCallResult is a result in the words of the SDK.
func newCallResult(r tool.Result) *mcp.CallToolResult {
	out := &mcp.CallToolResult{Content: []mcp.Content{}, IsError: r.IsError}
	for _, p := range r.Parts {
		out.Content = append(out.Content, newContent(p))
	}
	if r.Structured != nil {
		out.StructuredContent = r.Structured
	}
	return out
}

// newContent is a part in the words of the SDK. A resource without text and data
// is a link.
func newContent(p item.Part) mcp.Content {
	var data []byte
	if p.Data != "" {
		data, _ = base64.StdEncoding.DecodeString(p.Data) // what is no base64 is sent as far as it is
	}
	switch {
	case p.Kind == item.Image:
		return &mcp.ImageContent{Data: data, MIMEType: p.MIMEType}
	case p.Kind == item.Audio:
		return &mcp.AudioContent{Data: data, MIMEType: p.MIMEType}
	case p.Kind == item.Resource && p.Text == "" && p.Data == "":
		return &mcp.ResourceLink{URI: p.URL, Name: p.Name, Title: p.Title, Description: p.Description, MIMEType: p.MIMEType}
	case p.Kind == item.Resource:
		return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: p.URL, MIMEType: p.MIMEType, Text: p.Text, Blob: data}}
	}
	return &mcp.TextContent{Text: p.Text}
}

// bare answers a request without the SDK.
func (m *MCPServer) bare(w http.ResponseWriter, r *http.Request, f frame) {
	switch f.Method {
	case "tools/list":
		reply(w, f.ID, map[string]any{"tools": m.definitions()})
	case "tools/call":
		t, ok := m.tool(f.Params.Name)
		if !ok {
			refuse(w, f.ID, -32602, fmt.Sprintf("unknown tool %q", f.Params.Name))
			return
		}
		result, err := m.perform(r.Context(), t, f.Params.Arguments, f.Params.Meta.Key)
		if err != nil {
			refuse(w, f.ID, -32603, err.Error())
			return
		}
		reply(w, f.ID, result)
	default:
		refuse(w, f.ID, -32601, "method not found")
	}
}

func reply(w http.ResponseWriter, id json.RawMessage, result any) {
	send(w, map[string]any{"jsonrpc": "2.0", "id": id, "result": result})
}

func refuse(w http.ResponseWriter, id json.RawMessage, code int, message string) {
	send(w, map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": message}})
}

func send(w http.ResponseWriter, answer map[string]any) {
	body, err := json.Marshal(answer)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // a caller that left is the caller's affair
}
