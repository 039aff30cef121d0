package chat

import (
	"encoding/json"

	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
)

// readOption reads a member of the body that all dialects share into the
// request, and reports whether it could, or the member says nothing. A value that the
// dialect does not allow is left to the provider to refuse.
func readOption(req *run.Request, m surface.Member) bool {
	if surface.SaysNothing(m) {
		return true
	}
	o := &req.Options
	switch m.Name {
	case "temperature":
		return read(m, &o.Temperature)
	case "top_p":
		return read(m, &o.TopP)
	case "top_k": // of compatible servers
		return read(m, &o.TopK)
	case "presence_penalty":
		return read(m, &o.PresencePenalty)
	case "frequency_penalty":
		return read(m, &o.FrequencyPenalty)
	case "seed":
		return read(m, &o.Seed)
	case "stop":
		return readStop(m, &o.Stop)
	case "response_format":
		return readFormat(m, &o.Format)
	case "reasoning_effort":
		return read(m, &o.Effort)
	case "verbosity":
		return read(m, &o.Verbosity)
	case "parallel_tool_calls":
		return read(m, &o.ParallelCalls)
	case "metadata":
		return read(m, &o.Metadata)
	case "user":
		return read(m, &o.User)
	case "cache_control":
		var w *wireCache
		ok := read(m, &w)
		o.Cache = w.marker()
		return ok
	case "max_tokens", "max_completion_tokens": // outputLimit reads both
		var n int64
		return read(m, &n) && n > 0
	}
	return false
}

// read decodes the value, and leaves into as it is where that fails.
func read[T any](m surface.Member, into *T) bool {
	var v T
	if json.Unmarshal(m.Value, &v) != nil {
		return false
	}
	*into = v
	return true
}

// readStop reads one text or a list of them.
func readStop(m surface.Member, into *[]string) bool {
	var one string
	if len(m.Value) > 0 && m.Value[0] == '"' && read(m, &one) {
		*into = []string{one}
		return true
	}
	return read(m, into)
}

// readFormat reads {"type":"json_schema","json_schema":{…}} and the short forms.
func readFormat(m surface.Member, into *model.Format) bool {
	var w *struct {
		Type       string `json:"type"`
		JSONSchema struct {
			Name        string          `json:"name"`
			Description string          `json:"description"`
			Schema      json.RawMessage `json:"schema"`
			Strict      *bool           `json:"strict"`
		} `json:"json_schema"`
	}
	if !read(m, &w) {
		return false
	}
	if w == nil {
		return true
	}
	switch w.Type {
	case "text", "json_object":
		*into = model.Format{Type: w.Type}
		return true
	case "json_schema":
		s := w.JSONSchema
		*into = model.Format{Type: w.Type, Name: s.Name, Description: s.Description, Schema: s.Schema, Strict: s.Strict}
		return true
	}
	return false
}
