package wire

import (
	"context"
	"maps"
	"net/url"
	"slices"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/internal/relay"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Relayer relays the requests of one of OpenAI's dialects, and those of the other endpoints of the same API,
// and lists its models. It implements [relay.Model] and [model.Lister].
type Relayer struct {
	client  *Client
	path    string // of nearly all requests
	to      *url.URL
	usageOf func(object []byte) model.Usage
}

// Relayer returns a Relayer for the dialect of the client, whose requests go to the path. usageOf reads a usage object.
func (c *Client) Relayer(path string, usageOf func(object []byte) model.Usage) Relayer {
	return Relayer{c, path, c.URL(path), usageOf}
}

// Relays implements [relay.Model].
func (r Relayer) Relays(dialect string) bool {
	return dialect == r.client.dialect || dialect == model.DialectEndpoints
}

// Relay implements [relay.Model].
func (r Relayer) Relay(ctx context.Context, req *relay.Request) (*relay.Response, error) {
	to, usageOf := r.to, r.usageOf
	if req.Path != r.path {
		to = r.client.URL(req.Path)
	}
	if req.Dialect == model.DialectEndpoints {
		usageOf = EndpointUsage
	}
	return r.client.Relay(ctx, to, req, usageOf)
}

// List implements [model.Lister] with GET {base}/models. The caller sets the deadline.
func (r Relayer) List(ctx context.Context, memory tool.Memory, yield func(model.Listed) bool) error {
	return r.client.Models(ctx, memory, yield)
}

// InBoth reports whether both of OpenAI's dialects have an untyped member of the name, with the same meaning:
// in OpenAI's document they take them from one schema.
func InBoth(name string) bool {
	switch name {
	case "safety_identifier", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", TierMember, "moderation":
		return true
	}
	return false
}

// SizeOf estimates the length of a request in which the items are written as the dialect wrote them, or
// otherwise from their fields. Most requests are a little shorter.
func SizeOf(req *model.Request, native func(*item.Item) []byte) int {
	n := 512
	for _, t := range req.Tools {
		n += 128 + len(t.Native) + len(t.Name) + len(t.Description) + len(t.InputSchema)
	}
	for i := range req.Items {
		it := &req.Items[i]
		n += 96 + len(it.CallID)
		if raw := native(it); raw != nil {
			n += len(raw)
			continue
		}
		for _, p := range it.Parts {
			n += 64 + len(p.Text) + len(p.Text)/8 + len(p.URL) + len(p.Data) // some characters need an escape
		}
		n += len(it.Name) + len(it.Arguments) + len(it.Arguments)/4
	}
	for _, p := range req.Params {
		n += 8 + len(p.Name) + len(p.Value)
	}
	return n
}

// AppendMetadata appends the member metadata, or nothing for none.
func AppendMetadata(dst []byte, metadata map[string]string) []byte {
	if len(metadata) == 0 {
		return dst
	}
	dst = append(dst, `,"metadata":{`...)
	for _, name := range slices.Sorted(maps.Keys(metadata)) {
		dst = jsonscan.AppendString(jsonscan.AppendMember(dst, name, nil), metadata[name])
	}
	return append(dst, '}')
}
