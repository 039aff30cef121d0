package openai

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/schema"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// maxStop is how many texts OpenAI's "stop" takes.
const maxStop = 4

// encode writes a request. Equal requests give equal bytes, and a request that
// continues another begins with the same bytes up to its new items, so that the
// provider's prompt cache sees the common part. JSON of the client and of the
// provider keeps its bytes, which jsontext.Encoder would reformat. asks says that the stream is to have its usage.
func (p *Provider) encode(req *model.Request, asks bool) []byte {
	dst := make([]byte, 0, wire.SizeOf(req, native))
	dst = jsonscan.AppendString(append(dst, `{"model":`...), req.Model)
	if tools := p.offered(req); len(tools) > 0 {
		dst = p.appendTools(append(dst, `,"tools":`...), req.Dialect, tools)
		dst = p.appendToolChoice(dst, req)
	}
	dst = appendMessages(append(dst, `,"messages":`...), req.Items)
	if req.Dialect == model.DialectChat {
		dst = p.appendParams(dst, req)
	} else {
		dst = p.appendOptions(dst, req, new(wire.Losses))
	}
	dst = append(dst, `,"stream":true`...)
	if asks {
		dst = appendStreamOptions(append(dst, `,"stream_options":`...), req)
	}
	return append(dst, '}')
}

// offered returns the tools that the model may call. A tool without a name is one
// that only another dialect has, such as a search that the provider runs itself.
func (p *Provider) offered(req *model.Request) []model.Tool {
	if req.Dialect == model.DialectChat {
		return req.Tools
	}
	only := req.ToolChoice.Only
	return slices.DeleteFunc(slices.Clone(req.Tools), func(t model.Tool) bool {
		return t.Name == "" || only != nil && !p.takesAllowedTools(req) && !slices.Contains(only, t.Name)
	})
}

// takesAllowedTools reports whether a choice among some of the tools is written as
// such. Few compatible providers know it: requests of another dialect offer them
// only the tools that are allowed.
func (p *Provider) takesAllowedTools(req *model.Request) bool {
	return req.Dialect == model.DialectChat || p.openAI
}

func (p *Provider) appendTools(dst []byte, dialect string, tools []model.Tool) []byte {
	for i, t := range tools {
		dst = append(dst, "[,"[min(i, 1)])
		if t.Native != nil && dialect == model.DialectChat {
			dst = append(dst, t.Native...)
			continue
		}
		dst = jsonscan.AppendString(append(dst, `{"type":"function","function":{"name":`...), t.Name)
		parameters, description, _ := schema.Arguments(t.InputSchema, t.Description)
		if description != "" {
			dst = jsonscan.AppendString(append(dst, `,"description":`...), description)
		}
		dst = append(append(dst, `,"parameters":`...), parameters...)
		if t.Strict != nil {
			dst = strconv.AppendBool(appendName(dst, "strict"), *t.Strict)
		}
		if reads := t.Annotations.ReadOnly; p.o.ToolHints && reads != nil {
			dst = append(strconv.AppendBool(append(dst, `,"annotations":{"readOnlyHint":`...), *reads), '}')
		}
		dst = append(dst, `}}`...)
	}
	return append(dst, ']')
}

// appendToolChoice appends the member, or nothing where the client left the choice
// to the provider.
func (p *Provider) appendToolChoice(dst []byte, req *model.Request) []byte {
	c := req.ToolChoice
	switch {
	case c.Native != nil && req.Dialect == model.DialectChat:
		return append(append(dst, `,"tool_choice":`...), c.Native...)
	case c.Only != nil && c.Mode != model.ChooseNone && c.Mode != model.ChooseNamed && p.takesAllowedTools(req):
		return appendAllowed(dst, c)
	case c.Mode == model.ChooseNamed:
		dst = jsonscan.AppendString(append(dst, `,"tool_choice":{"type":"function","function":{"name":`...), c.Name)
		return append(dst, `}}`...)
	case c.Mode != "":
		return jsonscan.AppendString(append(dst, `,"tool_choice":`...), c.Mode)
	}
	return dst
}

// appendAllowed appends a choice among some of the tools.
func appendAllowed(dst []byte, c model.ToolChoice) []byte {
	dst = jsonscan.AppendString(append(dst, `,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":`...), cmp.Or(c.Mode, "auto"))
	dst = append(dst, `,"tools":[`...)
	for i, name := range c.Only {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonscan.AppendString(append(dst, `{"type":"function","function":{"name":`...), name)
		dst = append(dst, `}}`...)
	}
	return append(dst, `]}}`...)
}

// appendParams appends the members of a request of this dialect as the client
// wrote them, without those that the gateway writes itself.
func (p *Provider) appendParams(dst []byte, req *model.Request) []byte {
	limit := ""
	if asked := clientLimit(req); req.MaxTokens > 0 && (asked == 0 || int64(req.MaxTokens) < asked) {
		limit = p.o.MaxTokensParam
	}
	for _, m := range req.Params {
		switch {
		case owned(m.Name), m.Name == "parallel_tool_calls" && len(req.Tools) == 0: // refused without tools
			continue
		case limit != "" && (m.Name == "max_tokens" || m.Name == "max_completion_tokens"):
			limit = m.Name // the client knows what its model understands
			continue
		}
		dst = jsonscan.AppendMember(dst, m.Name, m.Value)
	}
	if limit != "" {
		dst = appendInt(appendName(dst, limit), int64(req.MaxTokens))
	}
	return dst
}

// Dropped implements model.Translator.
func (p *Provider) Dropped(req *model.Request) []string {
	if req.Dialect == model.DialectChat {
		return nil
	}
	var l wire.Losses
	p.appendOptions(nil, req, &l)
	return l.Dropped()
}

// appendOptions appends the settings of a request of another dialect.
func (p *Provider) appendOptions(dst []byte, req *model.Request, l *wire.Losses) []byte {
	dst = p.appendShared(dst, req, l)
	dst = appendFloat(dst, "temperature", req.Temperature)
	dst = appendFloat(dst, "top_p", req.TopP)
	if !p.openAI { // an extension that compatible servers know
		dst = appendInteger(dst, "top_k", req.TopK)
	}
	l.Drop("top_k", p.openAI && req.TopK != nil)
	l.Drop("cache_control", req.CacheMarkers() > 0)
	dst = appendFloat(dst, "presence_penalty", req.PresencePenalty)
	dst = appendFloat(dst, "frequency_penalty", req.FrequencyPenalty)
	dst = appendInteger(dst, "seed", req.Seed)
	stop := req.Stop
	if p.openAI && len(stop) > maxStop {
		stop = stop[:maxStop]
	}
	dst = appendStop(dst, stop)
	l.Drop("stop", len(stop) < len(req.Stop))
	dst = appendFormat(dst, req.Format)
	dst = appendText(dst, "reasoning_effort", req.Effort)
	dst = appendText(dst, "verbosity", req.Verbosity)
	if req.ParallelCalls != nil && len(p.offered(req)) > 0 { // refused without tools
		dst = strconv.AppendBool(appendName(dst, "parallel_tool_calls"), *req.ParallelCalls)
	}
	if !p.openAI { // OpenAI takes metadata only with answers that it stores
		dst = wire.AppendMetadata(dst, req.Metadata)
	}
	l.Drop("metadata", p.openAI && len(req.Metadata) > 0)
	dst = appendText(dst, "user", req.User)
	if req.MaxTokens > 0 {
		dst = appendInt(appendName(dst, p.o.MaxTokensParam), int64(req.MaxTokens))
	}
	return dst
}

// appendShared appends the members of the client's dialect that this one has, too. Compatible servers may
// not know them.
func (p *Provider) appendShared(dst []byte, req *model.Request, l *wire.Losses) []byte {
	for _, m := range req.Params {
		taken := p.openAI && req.Dialect == model.DialectResponses && wire.InBoth(m.Name)
		if taken && !m.Typed {
			dst = jsonscan.AppendMember(dst, m.Name, m.Value)
		}
		l.Drop(m.Name, !taken && !m.Typed)
		l.Drop("reasoning.summary", m.Typed && m.Name == "reasoning" && asksForSummary(m.Value))
	}
	l.Drop("tools", slices.ContainsFunc(req.Tools, func(t model.Tool) bool { return t.Name == "" }))
	l.Drop("tool_choice", req.ToolChoice.Mode == "" && req.ToolChoice.Native != nil)
	others := func(i item.Item) bool { return i.Kind == item.Other && i.Native.Dialect == req.Dialect }
	l.Drop(wire.NameOf(req, wire.MemberItems), slices.ContainsFunc(req.Items, others))
	return dst
}

// asksForSummary reports whether a member reasoning of DialectResponses has a summary.
func asksForSummary(reasoning []byte) bool {
	for name, value := range jsonscan.Members(reasoning) {
		if string(name) == "summary" && string(value) != "null" {
			return true
		}
	}
	return false
}

// appendName appends the name of the next member.
func appendName(dst []byte, name string) []byte {
	return append(jsonscan.AppendString(append(dst, ','), name), ':')
}

// appendText appends a member, or nothing for "".
func appendText(dst []byte, name, text string) []byte {
	if text == "" {
		return dst
	}
	return jsonscan.AppendString(appendName(dst, name), text)
}

// appendFloat appends a member, or nothing for nil.
func appendFloat(dst []byte, name string, n *float64) []byte {
	if n == nil {
		return dst
	}
	return strconv.AppendFloat(appendName(dst, name), *n, 'g', -1, 64)
}

// appendInteger appends a member, or nothing for nil.
func appendInteger(dst []byte, name string, n *int64) []byte {
	if n == nil {
		return dst
	}
	return appendInt(appendName(dst, name), *n)
}

func appendStop(dst []byte, stop []string) []byte {
	if len(stop) == 0 {
		return dst
	}
	dst = appendName(dst, "stop")
	for i, text := range stop {
		dst = jsonscan.AppendString(append(dst, "[,"[min(i, 1)]), text)
	}
	return append(dst, ']')
}

// appendFormat appends the form of the answer, or nothing for text.
func appendFormat(dst []byte, f model.Format) []byte {
	switch f.Type {
	case "", "text":
		return dst
	case "json_schema":
		dst = append(dst, `,"response_format":{"type":"json_schema","json_schema":{"name":`...)
		dst = jsonscan.AppendString(dst, cmp.Or(f.Name, "answer")) // the dialect demands one
		dst = appendText(dst, "description", f.Description)
		if len(f.Schema) > 0 {
			dst = jsonscan.AppendMember(dst, "schema", f.Schema)
		}
		if f.Strict != nil {
			dst = strconv.AppendBool(appendName(dst, "strict"), *f.Strict)
		}
		return append(dst, `}}`...)
	}
	return append(jsonscan.AppendString(append(dst, `,"response_format":{"type":`...), f.Type), '}')
}

// owned reports whether a member of the request is the gateway's to write.
func owned(name string) bool {
	switch name {
	case "model", "messages", "tools", "tool_choice", "stream", "stream_options", "n":
		return true
	}
	return false
}

// clientLimit returns the lowest output limit in Params; 0 without one.
func clientLimit(req *model.Request) int64 {
	limit := int64(0)
	for _, m := range req.Params {
		if m.Name != "max_tokens" && m.Name != "max_completion_tokens" {
			continue
		}
		if n := jsonscan.Number(m.Value, 0); n > 0 && (limit == 0 || n < limit) {
			limit = n
		}
	}
	return limit
}

// appendStreamOptions appends the client's stream options with usage switched on.
func appendStreamOptions(dst []byte, req *model.Request) []byte {
	dst = append(dst, `{"include_usage":true`...)
	for name, v := range jsonscan.Members(clientStreamOptions(req)) {
		if string(name) != "include_usage" {
			dst = jsonscan.AppendMember(dst, name, v)
		}
	}
	return append(dst, '}')
}

func clientStreamOptions(req *model.Request) json.RawMessage {
	if req.Dialect == model.DialectChat {
		for _, m := range req.Params {
			if m.Name == "stream_options" && jsonscan.Valid(m.Value) {
				return jsonscan.TrimSpace(m.Value)
			}
		}
	}
	return nil
}
