package openai

import (
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/model"
)

// encode writes a request. Equal requests give equal bytes, and a request that
// continues another begins with the same bytes up to its new items, so that the
// provider's prompt cache sees the common part.
func (p *Provider) encode(req *model.Request) []byte {
	dst := make([]byte, 0, sizeOf(req))
	dst = wire.AppendString(append(dst, `{"model":`...), req.Model)
	if len(req.Tools) > 0 {
		dst = appendTools(append(dst, `,"tools":`...), req)
		dst = appendToolChoice(dst, req)
	}
	dst = appendMessages(append(dst, `,"messages":`...), req.Items)
	dst = p.appendParams(dst, req)
	dst = append(dst, `,"stream":true,"stream_options":`...)
	return append(appendStreamOptions(dst, req), '}')
}

// sizeOf guesses the length of the request, a little too high as a rule.
func sizeOf(req *model.Request) int {
	n := 512
	for _, t := range req.Tools {
		n += 128 + len(t.Native) + len(t.Name) + len(t.Description) + len(t.InputSchema)
	}
	for _, i := range req.Items {
		n += 96 + len(i.Native.JSON)
		if i.Native.Dialect == Dialect {
			continue
		}
		for _, p := range i.Parts {
			n += 32 + len(p.Text) + len(p.Text)/8 + len(p.URL) + len(p.Data)
		}
		n += len(i.CallID) + len(i.Name) + len(i.Arguments) + len(i.Arguments)/4
	}
	for _, p := range req.Params {
		n += 8 + len(p.Name) + len(p.Value)
	}
	return n
}

func appendTools(dst []byte, req *model.Request) []byte {
	for i, t := range req.Tools {
		dst = append(dst, "[,"[min(i, 1)])
		if t.Native != nil && req.Dialect == Dialect {
			dst = append(dst, t.Native...)
			continue
		}
		dst = wire.AppendString(append(dst, `{"type":"function","function":{"name":`...), t.Name)
		if t.Description != "" {
			dst = wire.AppendString(append(dst, `,"description":`...), t.Description)
		}
		dst = append(dst, `,"parameters":`...)
		if len(t.InputSchema) == 0 {
			dst = append(dst, `{"type":"object","properties":{}}`...)
		}
		dst = append(append(dst, t.InputSchema...), `}}`...)
	}
	return append(dst, ']')
}

// appendToolChoice appends the member, or nothing where the provider is free.
func appendToolChoice(dst []byte, req *model.Request) []byte {
	c := req.ToolChoice
	switch {
	case c.Native != nil && req.Dialect == Dialect:
		return append(append(dst, `,"tool_choice":`...), c.Native...)
	case c.Only != nil:
		return appendAllowed(dst, c)
	case c.Mode == "named":
		dst = wire.AppendString(append(dst, `,"tool_choice":{"type":"function","function":{"name":`...), c.Name)
		return append(dst, `}}`...)
	case c.Mode != "":
		return wire.AppendString(append(dst, `,"tool_choice":`...), c.Mode)
	}
	return dst
}

// appendAllowed appends a choice among some of the tools.
func appendAllowed(dst []byte, c model.ToolChoice) []byte {
	dst = wire.AppendString(append(dst, `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":`...), c.Mode)
	dst = append(dst, `,"tools":[`...)
	for i, name := range c.Only {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = wire.AppendString(append(dst, `{"type":"function","function":{"name":`...), name)
		dst = append(dst, `}}`...)
	}
	return append(dst, `]}}`...)
}

// appendParams appends the client's own members as they are, without those
// that the gateway decides.
func (p *Provider) appendParams(dst []byte, req *model.Request) []byte {
	limit := ""
	if req.MaxTokens > 0 {
		limit = p.o.MaxTokensParam
	}
	if req.Dialect == Dialect {
		for _, m := range req.Params {
			switch {
			case owned(m.Name), m.Name == "parallel_tool_calls" && len(req.Tools) == 0: // refused without tools
				continue
			case limit != "" && (m.Name == "max_tokens" || m.Name == "max_completion_tokens"):
				limit = m.Name // the client knows what its model understands
				continue
			}
			dst = append(wire.AppendString(append(dst, ','), m.Name), ':')
			dst = append(dst, m.Value...)
		}
	}
	if limit != "" {
		dst = append(wire.AppendString(append(dst, ','), limit), ':')
		dst = appendInt(dst, min(int64(req.MaxTokens), clientLimit(req)))
	}
	return dst
}

// owned reports whether a member of the request is the gateway's to write.
func owned(name string) bool {
	switch name {
	case "model", "messages", "tools", "tool_choice", "stream", "stream_options", "n":
		return true
	}
	return false
}

// clientLimit returns the output limit in Params, or MaxTokens without one.
func clientLimit(req *model.Request) int64 {
	limit := int64(req.MaxTokens)
	if req.Dialect != Dialect {
		return limit
	}
	for _, m := range req.Params {
		if m.Name == "max_tokens" || m.Name == "max_completion_tokens" {
			if n := wire.Number(m.Value, limit); n > 0 {
				limit = min(limit, n)
			}
		}
	}
	return limit
}

// appendStreamOptions appends the client's stream options with usage switched on.
func appendStreamOptions(dst []byte, req *model.Request) []byte {
	dst = append(dst, `{"include_usage":true`...)
	for name, v := range wire.Members(clientStreamOptions(req)) {
		if string(name) != "include_usage" {
			dst = append(wire.AppendString(append(dst, ','), name), ':')
			dst = append(dst, v...)
		}
	}
	return append(dst, '}')
}

func clientStreamOptions(req *model.Request) json.RawMessage {
	if req.Dialect == Dialect {
		for _, m := range req.Params {
			if m.Name == "stream_options" && wire.Valid(m.Value) {
				return wire.TrimSpace(m.Value)
			}
		}
	}
	return nil
}
