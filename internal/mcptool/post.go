package mcptool

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-gateway/turnpike/tool"
)

// poster sends the calls of a session over HTTP: one JSON-RPC POST per request. [transport] reads
// the answers, as it does for the SDK, which would decode each request again for its headers. To a
// server that refuses initialize it sends plain tools/list and tools/call.
type poster struct {
	client  *Client
	version string       // the protocol revision; "" = plain requests
	session string       // the id of the session; "" = none
	last    atomic.Int64 // the id of the latest request
}

// firstPosted is the id before those of a poster in a session of the SDK, which counts its own
// from 1.
const firstPosted = 1 << 30

func newPoster(c *Client, sdk *mcp.ClientSession) *poster {
	p := &poster{client: c, version: sdk.InitializeResult().ProtocolVersion, session: sdk.ID()}
	p.last.Store(firstPosted)
	return p
}

type listParams struct {
	Cursor string `json:"cursor,omitempty"`
}

type callParams struct {
	Meta      mcp.Meta        `json:"_meta,omitempty"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`

	key    string      // the idempotency key; "" = none
	memory tool.Memory // charged with the answer; nil = nothing is
	tracer Tracer      // nil = no trace context
}

// list requests one page of tools.
func (p *poster) list(ctx context.Context, cursor string) outcome {
	x := &exchange{}
	return x.finish(p.post(withExchange(ctx, x), p.next(), methodList, listParams{cursor}, p.header()))
}

// call calls a tool, whose outcome is that of x. If ctx ends before the answer, it tells the server.
func (p *poster) call(ctx context.Context, x *exchange, c callParams) outcome {
	header := p.header()
	if p.version >= statelessVersion {
		header.Set("Mcp-Method", methodCall)
		header.Set("Mcp-Name", c.Name)
		c.Meta = addRequestMeta(c.Meta, p.version)
	}
	ctx = withExchange(ctx, x)
	id := p.next()
	o := x.finish(p.post(ctx, id, methodCall, c, header))
	if ctx.Err() != nil && o.mayHaveRun() && p.version != "" {
		p.cancel(ctx, id)
	}
	return o
}

func (p *poster) next() json.RawMessage { return strconv.AppendInt(nil, p.last.Add(1), 10) }

// header returns the headers of every request.
func (p *poster) header() http.Header {
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	if p.version != "" {
		h["Mcp-Protocol-Version"] = []string{p.version}
	}
	if p.session != "" {
		h["Mcp-Session-Id"] = []string{p.session}
	}
	return h
}

// post sends one request. The exchange of ctx has the outcome.
func (p *poster) post(ctx context.Context, id json.RawMessage, method string, params any, header http.Header) error {
	return p.send(ctx, header, struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  string          `json:"method"`
		Params  any             `json:"params"`
	}{"2.0", id, method, params})
}

// cancel tells the server that nobody waits for the answer to a request any more. It does not wait.
func (p *poster) cancel(ctx context.Context, id json.RawMessage) {
	header := p.header()
	if p.version >= statelessVersion {
		header.Set("Mcp-Method", methodCancelled)
	}
	_ = p.send(context.WithoutCancel(ctx), header, struct {
		JSONRPC string         `json:"jsonrpc"`
		Method  string         `json:"method"`
		Params  map[string]any `json:"params"`
	}{"2.0", methodCancelled, map[string]any{"requestId": id, "reason": ctx.Err().Error()}})
}

func (p *poster) send(ctx context.Context, header http.Header, message any) error {
	body, err := marshal(message)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.client.server.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header = header
	resp, err := p.client.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// marshal encodes v without escaping <, > and & in strings.
func marshal(v any) ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(out.Bytes()), err
}

// addRequestMeta adds the members of _meta that revision 2026-07-28 wants in every request.
func addRequestMeta(m mcp.Meta, version string) mcp.Meta {
	if m == nil {
		m = mcp.Meta{}
	}
	m[mcp.MetaKeyProtocolVersion] = version
	m[mcp.MetaKeyClientInfo] = clientInfo()
	m[mcp.MetaKeyClientCapabilities] = struct{}{}
	return m
}
