package openairesponses

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/schema"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// minMaxOutputTokens is the least value that the dialect allows for
// max_output_tokens. A lower limit is raised to it.
const minMaxOutputTokens = 16

// encode writes a request without the optional members that are refused. Equal
// requests give equal bytes, and a request that continues another begins with the
// same bytes up to its new items, so that the provider's prompt cache sees the
// common part.
func encode(req *model.Request, without optional) []byte {
	dst := appendPrompt(make([]byte, 0, wire.SizeOf(req, native)), req)
	if req.Dialect == model.DialectResponses {
		dst = appendParams(dst, req, without)
	} else {
		dst = appendOptions(dst, req, without)
	}
	return append(dst, `,"store":false,"stream":true}`...)
}

// encodeInput writes what the provider counts the tokens of.
func encodeInput(req *model.Request) []byte {
	return append(appendText(appendPrompt(make([]byte, 0, wire.SizeOf(req, native)), req), req), '}')
}

// appendPrompt appends an open object with the members that every request has.
func appendPrompt(dst []byte, req *model.Request) []byte {
	dst = jsonscan.AppendString(append(dst, `{"model":`...), req.Model)
	tools := len(req.Tools) > 0 || len(req.Hosted) > 0 && req.Dialect == model.DialectResponses
	if tools {
		dst = appendTools(append(dst, `,"tools":`...), req)
	}
	dst = appendInput(append(dst, `,"input":`...), req.Items)
	if tools {
		dst = appendToolChoice(dst, req)
	}
	return dst
}

// appendOptions appends the client's options in the words of this dialect.
func appendOptions(dst []byte, req *model.Request, without optional) []byte {
	if req.ParallelCalls != nil && len(req.Tools) > 0 {
		dst = strconv.AppendBool(append(dst, `,"parallel_tool_calls":`...), *req.ParallelCalls)
	}
	if req.MaxTokens > 0 {
		dst = appendLimit(dst, int64(req.MaxTokens))
	}
	dst = appendNumber(dst, `,"temperature":`, req.Temperature)
	dst = appendNumber(dst, `,"top_p":`, req.TopP)
	if req.Effort != "" {
		dst = jsonscan.AppendString(append(dst, `,"reasoning":{"effort":`...), req.Effort)
		if req.Effort != "none" && !without.summary {
			dst = append(dst, `,"summary":"auto"`...)
		}
		dst = append(dst, '}')
	}
	dst = appendText(dst, req)
	dst = wire.AppendMetadata(dst, req.Metadata)
	if req.User != "" {
		dst = jsonscan.AppendString(append(dst, `,"user":`...), req.User)
	}
	if req.Dialect == model.DialectChat {
		for _, m := range req.Params {
			if m.Name == "stream_options" {
				dst = appendStreamOptions(dst, m.Value)
			}
			if wire.InBoth(m.Name) && jsonscan.Valid(m.Value) && !jsonscan.IsNull(jsonscan.TrimSpace(m.Value)) {
				dst = jsonscan.AppendMember(dst, m.Name, m.Value)
			}
		}
	}
	if !without.include {
		dst = append(dst, `,"include":["reasoning.encrypted_content"]`...)
	}
	return dst
}

// appendStreamOptions appends the one option that chat completions have, too: to
// switch off the padding of events.
func appendStreamOptions(dst []byte, options json.RawMessage) []byte {
	if !isObject(options) {
		return dst
	}
	v := jsonscan.Member(jsonscan.TrimSpace(options), "include_obfuscation")
	if !jsonscan.IsKind(v, 't') && !jsonscan.IsKind(v, 'f') {
		return dst
	}
	return append(append(append(dst, `,"stream_options":{"include_obfuscation":`...), v...), '}')
}

func appendNumber(dst []byte, name string, v *float64) []byte {
	if v == nil {
		return dst
	}
	return strconv.AppendFloat(append(dst, name...), *v, 'f', -1, 64)
}

func appendLimit(dst []byte, limit int64) []byte {
	return strconv.AppendInt(append(dst, `,"max_output_tokens":`...), max(limit, minMaxOutputTokens), 10)
}

// appendText appends the form of the answer.
func appendText(dst []byte, req *model.Request) []byte {
	f := req.Format
	if (f.Type == "" || f.Type == "json_schema" && !isObject(f.Schema)) && req.Verbosity == "" {
		return dst
	}
	dst = append(dst, `,"text":{`...)
	switch {
	case f.Type == "json_schema" && isObject(f.Schema):
		if f.Name == "" {
			f.Name = "answer" // the dialect demands one
		}
		dst = jsonscan.AppendString(append(dst, `"format":{"type":"json_schema","name":`...), f.Name)
		if f.Description != "" {
			dst = jsonscan.AppendString(append(dst, `,"description":`...), f.Description)
		}
		dst = append(append(dst, `,"schema":`...), f.Schema...)
		if f.Strict != nil {
			dst = strconv.AppendBool(append(dst, `,"strict":`...), *f.Strict)
		}
		dst = append(dst, `},`...)
	case f.Type == "json_object" || f.Type == "text":
		dst = jsonscan.AppendString(append(dst, `"format":{"type":`...), f.Type)
		dst = append(dst, `},`...)
	}
	if req.Verbosity != "" {
		dst = jsonscan.AppendString(append(dst, `"verbosity":`...), req.Verbosity)
		return append(dst, '}')
	}
	dst[len(dst)-1] = '}' // in place of the comma
	return dst
}

// appendParams appends the members of a client of this dialect as they are,
// without those that the gateway decides.
func appendParams(dst []byte, req *model.Request, without optional) []byte {
	limit := int64(req.MaxTokens)
	var include []byte
	for _, m := range req.Params {
		switch m.Name {
		case "model", "input", "tools", "tool_choice", "store", "stream", "background", "previous_response_id", "conversation":
			continue
		case "parallel_tool_calls":
			if len(req.Tools)+len(req.Hosted) == 0 {
				continue
			}
		case "max_output_tokens":
			if n := jsonscan.Number(m.Value, 0); n > 0 && (limit <= 0 || n < limit) {
				limit = n
			}
			continue
		case "include":
			include = jsonscan.TrimSpace(m.Value)
			continue
		}
		dst = jsonscan.AppendMember(dst, m.Name, m.Value)
	}
	if limit > 0 {
		dst = appendLimit(dst, limit)
	}
	return appendInclude(dst, include, without)
}

// appendInclude appends what the client wants included, and encrypted reasoning.
func appendInclude(dst, asked []byte, without optional) []byte {
	const encrypted = `"reasoning.encrypted_content"`
	begin := len(dst)
	for _, v := range jsonscan.Elements(asked) {
		without.include = without.include || string(v) == encrypted
		dst = append(append(dst, ','), v...)
	}
	if !without.include {
		dst = append(dst, `,`+encrypted...)
	}
	if len(dst) == begin {
		return dst
	}
	const name = `,"include":[`
	dst = slices.Insert(dst, begin+1, []byte(name[1:])...)
	return append(dst, ']')
}

// Dropped implements model.Translator.
func (p *Provider) Dropped(req *model.Request) []string {
	if req.Dialect == model.DialectResponses {
		return nil
	}
	var l wire.Losses
	drop := l.Drop
	drop("cache_control", req.CacheMarkers() > 0)
	drop("top_k", req.TopK != nil)
	drop("seed", req.Seed != nil)
	drop("stop", len(req.Stop) > 0)
	drop("presence_penalty", req.PresencePenalty != nil && *req.PresencePenalty != 0)
	drop("frequency_penalty", req.FrequencyPenalty != nil && *req.FrequencyPenalty != 0)
	drop(wire.NameOf(req, wire.MemberFormat), req.Format.Type == "json_schema" && !isObject(req.Format.Schema))
	for i := range req.Items {
		it := &req.Items[i]
		if native(it) != nil || it.Native.Dialect == "" && it.Kind == item.ToolResult { // not the client's
			continue
		}
		drop(wire.NameOf(req, wire.MemberItemName), it.Kind == item.Message && it.Name != "")
		for _, p := range it.Parts {
			drop(wire.NameOfPart(req, it, p.Kind), !takes(it, p))
		}
	}
	for _, m := range req.Params {
		raised := (m.Name == "max_tokens" || m.Name == "max_completion_tokens") && 0 < req.MaxTokens && req.MaxTokens < minMaxOutputTokens
		drop(m.Name, raised)
		drop(m.Name, !m.Typed && !(req.Dialect == model.DialectChat && (wire.InBoth(m.Name) || m.Name == "store" && string(m.Value) == "false")))
	}
	return l.Dropped()
}

// takes reports whether the dialect takes a part of an item as it is. Of a message of
// the model it takes text only.
func takes(it *item.Item, p item.Part) bool {
	if p.Kind == item.Text || p.Kind == item.Refusal || it.Kind == item.Reasoning {
		return true
	}
	return mediaType(p) != "" && !(it.Kind == item.Message && it.Role == item.Assistant)
}

// appendTools appends the tools. The dialect checks arguments strictly where a
// tool says nothing about it, which not every schema allows.
func appendTools(dst []byte, req *model.Request) []byte {
	dst = append(dst, '[')
	if req.Dialect == model.DialectResponses {
		for _, t := range req.Hosted {
			dst = append(append(dst, t.JSON...), ',')
		}
	}
	for _, t := range req.Tools {
		if t.Native != nil && req.Dialect == model.DialectResponses {
			dst = append(append(dst, t.Native...), ',')
			continue
		}
		dst = jsonscan.AppendString(append(dst, `{"type":"function","name":`...), t.Name)
		parameters, description, _ := schema.Arguments(t.InputSchema, t.Description)
		if description != "" {
			dst = jsonscan.AppendString(append(dst, `,"description":`...), description)
		}
		dst = append(append(dst, `,"parameters":`...), parameters...)
		dst = strconv.AppendBool(append(dst, `,"strict":`...), t.Strict != nil && *t.Strict)
		dst = append(dst, "},"...)
	}
	dst[len(dst)-1] = ']' // in place of the comma
	return dst
}

func isObject(v json.RawMessage) bool {
	return jsonscan.IsKind(jsonscan.TrimSpace(v), '{') && jsonscan.Valid(v)
}

// appendToolChoice appends the member, or nothing where the provider is free.
func appendToolChoice(dst []byte, req *model.Request) []byte {
	c := req.ToolChoice
	switch {
	case c.Native != nil && req.Dialect == model.DialectResponses:
		return append(append(dst, `,"tool_choice":`...), c.Native...)
	case c.Mode == model.ChooseNamed:
		dst = jsonscan.AppendString(append(dst, `,"tool_choice":{"type":"function","name":`...), c.Name)
		return append(dst, '}')
	case c.Only != nil && len(c.Only)+len(hosted(req)) == 0 && c.Mode != model.ChooseRequired: // the dialect has no empty list
		return append(dst, `,"tool_choice":"none"`...)
	case c.Only != nil && c.Mode != model.ChooseNone:
		return appendAllowed(dst, c, hosted(req))
	case c.Mode != "":
		return jsonscan.AppendString(append(dst, `,"tool_choice":`...), c.Mode)
	}
	return dst
}

// hosted returns the provider's own tools that a choice among some of the tools names.
func hosted(req *model.Request) []json.RawMessage {
	if req.Dialect != model.DialectResponses {
		return nil
	}
	return req.ToolChoice.OnlyHosted
}

// appendAllowed appends a choice among some of the tools.
func appendAllowed(dst []byte, c model.ToolChoice, hosted []json.RawMessage) []byte {
	if c.Mode == "" {
		c.Mode = "auto"
	}
	dst = jsonscan.AppendString(append(dst, `,"tool_choice":{"type":"allowed_tools","mode":`...), c.Mode)
	dst = append(dst, `,"tools":[`...)
	for _, name := range c.Only {
		dst = jsonscan.AppendString(append(dst, `{"type":"function","name":`...), name)
		dst = append(dst, "},"...)
	}
	for _, t := range hosted {
		dst = append(append(dst, t...), ',')
	}
	if dst[len(dst)-1] == ',' {
		dst = dst[:len(dst)-1]
	}
	return append(dst, `]}`...)
}
