package mcptool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/turnpike-gateway/turnpike/tool"
)

// Limits of one answer, in bytes.
const (
	maxAnswer    = 16 << 20
	maxErrorBody = 64 << 10
)

// answer reads the HTTP answer to one call.
type answer struct {
	transport *transport
	request   *http.Request
	exchange  *exchange
	id        json.RawMessage
	method    string
	session   string // the id that the answer gives the session; "" = none
}

// read reads the answer, JSON or a stream of events, and returns what the layer above may see
// of it. It takes over release.
func (a *answer) read(ctx context.Context, resp *http.Response, release func()) (*http.Response, error) {
	body := &closing{resp.Body, release}
	if enc := resp.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		_ = body.Close()
		return a.reply(resp, a.fail(errEncoded))
	}
	limit := int64(maxAnswer)
	if !success(resp) {
		limit = maxErrorBody
	}
	bytesLeft := &capped{body, limit, a.exchange.memory}
	src := bufio.NewReaderSize(bytesLeft, 512) // for isEvents; large reads pass it by
	if success(resp) && isEvents(src, resp.Header.Get("Content-Type")) {
		a.session = resp.Header.Get("Mcp-Session-Id")
		return a.reply(resp, a.stream(ctx, src, body, bytesLeft).read())
	}
	data, err := io.ReadAll(src)
	if err != nil {
		err = readFailure(ctx, err) // before closing, which ends ctx
	}
	_ = body.Close()
	return a.reply(resp, a.settleJSON(resp, data, err))
}

// settleJSON judges a whole body, or what was read of it before err.
func (a *answer) settleJSON(resp *http.Response, data []byte, err error) []byte {
	if err != nil && success(resp) {
		return a.fail(err)
	}
	f, err := decodeFrame(data)
	switch {
	case err == nil && f.answers(a.id) && (success(resp) || present(f.Error)):
		return a.settle(f)
	case !success(resp):
		return a.fail(&statusError{resp.StatusCode, beginning(data)})
	case len(bytes.TrimSpace(data)) == 0:
		return a.fail(fmt.Errorf("%w: it is empty", errMalformed))
	case err != nil:
		return a.fail(malformed(resp.Header.Get("Content-Type")))
	}
	return a.fail(fmt.Errorf("%w: it answers another request", errMalformed))
}

// settle records the frame that answers the request and returns the one that the
// SDK is to see.
func (a *answer) settle(f frame) []byte {
	if present(f.Error) {
		e := decodeRPCError(f.Error)
		a.exchange.update(func(o *outcome) { o.rpc = e })
		return a.encodeError(e)
	}
	if (a.method == methodInitialize || a.method == methodDiscover) && f.Result[0] != '{' {
		return a.fail(fmt.Errorf("%w: the result of %s is not an object", errMalformed, a.method))
	}
	a.exchange.update(func(o *outcome) { o.result = f.Result })
	if a.method == methodCall {
		return a.taken()
	}
	return a.encodeResult(f.Result)
}

// taken returns what the SDK sees of a call that has a result, on one stream. The
// result is in the exchange, which decides (see exchange.finish). The SDK would decode a result
// in three steps, each with a buffer of 32 KiB; an error it only passes on.
func (a *answer) taken() []byte {
	const before, after = `{"jsonrpc":"2.0","id":`, `,"error":{"code":-32603,"message":"the result is not for the SDK"}}`
	return slices.Concat([]byte(before), a.id, []byte(after))
}

// fail records why there is no answer and returns an error frame in its place:
// a read error would make the SDK close the session under all other calls.
func (a *answer) fail(err error) []byte {
	a.exchange.update(func(o *outcome) { o.err = err })
	return a.encodeError(&rpcError{Code: codeInternal, Message: err.Error()})
}

// encodeResult builds the frame for the SDK. Only the handshake's results matter
// to it, and those tool definitions that ask for headers.
func (a *answer) encodeResult(result json.RawMessage) []byte {
	switch a.method {
	case methodList:
		result = headerTools(result)
	case methodInitialize, methodDiscover:
		result = handshakeResult(a.method, result)
	}
	return encode(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  json.RawMessage `json:"result"`
	}{"2.0", a.id, result})
}

func (a *answer) encodeError(e *rpcError) []byte {
	seen := struct {
		Code    int64           `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data,omitempty"`
	}{int64(e.Code), e.Message, nil}
	if a.method == methodDiscover && len(e.Data) <= maxErrorBody {
		seen.Data = e.Data // the versions that the server supports
	}
	return encode(struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   any             `json:"error"`
	}{"2.0", a.id, seen})
}

// encode marshals what is known to be valid JSON.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode frame: %v", err))
	}
	return data
}

// reply returns the frame as an answer for the SDK. The session id passes only where one is
// given out; at any other time it could only break the session. For a tool call the layer above
// gets errTaken instead, because the exchange has the answer.
func (a *answer) reply(resp *http.Response, frame []byte) (*http.Response, error) {
	if a.method == methodCall {
		return nil, errTaken
	}
	out := respond(a.request, http.StatusOK, "application/json", io.NopCloser(bytes.NewReader(frame)))
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" && a.method == methodInitialize && success(resp) {
		out.Header.Set("Mcp-Session-Id", id)
	}
	return out, nil
}

// errTaken is the error of the http.Client in place of the answer to a tool call.
var errTaken = errors.New("the answer is in the exchange")

func success(resp *http.Response) bool { return resp.StatusCode/100 == 2 }

// isEvents tells an event stream from JSON by its first bytes and, where they
// leave it open, by the content type, because servers mislabel both.
func isEvents(src *bufio.Reader, contentType string) bool {
	for n := 1; ; n++ {
		head, err := src.Peek(n)
		start := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n")
		switch {
		case len(start) > 0 && (start[0] == '{' || start[0] == '['):
			return false
		case beginsEvent(start):
			return true
		case err != nil, n > 64, len(start) > len("event:"):
			return mediaType(contentType) == "text/event-stream"
		}
	}
}

// beginsEvent reports whether an event stream can begin with start.
func beginsEvent(start []byte) bool {
	for _, field := range []string{":", "data:", "event:", "id:", "retry:"} {
		if bytes.HasPrefix(start, []byte(field)) {
			return true
		}
	}
	return false
}

// readFailure names the error of reading a body.
func readFailure(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, errTooLarge):
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", errNoAnswer, err)
}

// capped reads at most left bytes and then fails. What it reads is charged to
// memory, if there is one: it may all belong to one answer.
type capped struct {
	io.Reader
	left   int64
	memory tool.Memory
}

// Read implements [io.Reader].
func (c *capped) Read(p []byte) (int, error) {
	if c.left <= 0 {
		var one [1]byte
		if n, err := c.Reader.Read(one[:]); n == 0 {
			return 0, err
		}
		return 0, errTooLarge
	}
	p = p[:min(int64(len(p)), c.left)]
	if err := charge(c.memory, len(p)); err != nil {
		return 0, err
	}
	n, err := c.Reader.Read(p)
	c.left -= int64(n)
	if c.memory != nil {
		c.memory.Release(len(p) - n)
	}
	return n, err
}

// charge charges n bytes of an answer. An answer for which there is no memory is
// too large.
func charge(memory tool.Memory, n int) error {
	if memory == nil {
		return nil
	}
	if err := memory.Acquire(n); err != nil {
		return fmt.Errorf("%w: %w", errTooLarge, err)
	}
	return nil
}
