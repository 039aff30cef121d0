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

// bare sends requests to a server that supports only tools/list and tools/call: one JSON-RPC
// POST per request, without session and protocol headers. [transport] reads the answers, as it
// does for the SDK.
type bare struct {
	http *http.Client
	url  string
	last atomic.Int64 // the id of the latest request
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

// post sends one request and returns its outcome. It uses the exchange of ctx, if there is
// one.
func (b *bare) post(ctx context.Context, method string, params any) outcome {
	x, ok := ctx.Value(exchangeKey{}).(*exchange)
	if !ok {
		x = &exchange{}
		ctx = withExchange(ctx, x)
	}
	return x.finish(b.send(ctx, method, params))
}

func (b *bare) send(ctx context.Context, method string, params any) error {
	body, err := marshal(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Method  string          `json:"method"`
		Params  any             `json:"params"`
	}{"2.0", strconv.AppendInt(nil, b.last.Add(1), 10), method, params})
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := b.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body) // the outcome is complete after the last read
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
