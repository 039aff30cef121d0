package mcpserver

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
)

// The codes of JSON-RPC errors that the protocol does not define.
const (
	codeAuthentication = -32001
	codeRate           = -32003
)

// rpcError is the body of an error that is found before a message is answered.
type rpcError struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"` // null: the message was not read
	Error   rpcErrorObject  `json:"error"`
}

type rpcErrorObject struct {
	Code    int           `json:"code"`
	Message string        `json:"message"`
	Data    *rpcErrorData `json:"data,omitempty"`
}

type rpcErrorData struct {
	Reason         string `json:"reason,omitempty"`
	RetryAfterSecs int    `json:"retry_after_secs,omitempty"`
}

// Errors returns the error format of the routes: JSON-RPC errors.
func Errors() *surface.Errors {
	types := map[fault.Code]string{}
	for _, c := range []fault.Code{
		fault.Invalid, fault.Unprocessable, fault.TooLarge, fault.Header, fault.MediaType, fault.Timeout, fault.Misdirected,
		fault.NotFound, fault.Gone, fault.Method, fault.Conflict,
	} {
		types[c] = strconv.Itoa(jsonrpc.CodeInvalidRequest)
	}
	for _, c := range []fault.Code{fault.Unauthorized, fault.Forbidden} {
		types[c] = strconv.Itoa(codeAuthentication)
	}
	types[fault.Limited] = strconv.Itoa(codeRate)
	return &surface.Errors{Types: types, Object: func(e surface.Error) any {
		code, err := strconv.Atoi(e.Type)
		if err != nil {
			code = jsonrpc.CodeInternalError
		}
		return rpcErrorOf(nil, code, e.Message, &rpcErrorData{e.Code, e.RetryAfter})
	}}
}

func rpcErrorOf(id json.RawMessage, code int, message string, data *rpcErrorData) rpcError {
	return rpcError{"2.0", id, rpcErrorObject{code, message, data}}
}

// rpcWriter writes the answer of the SDK as the client takes it: plain errors as JSON-RPC errors, ids as they came, and
// the stream of one answer as JSON if the client accepts no stream.
type rpcWriter struct {
	http.ResponseWriter
	m      message       // that is answered
	asJSON bool          // the client accepts no stream
	plain  *bytes.Buffer // the text of an error; nil = the answer is none
	code   int
	stream *bytes.Buffer // the stream that becomes JSON; nil = it is written as it comes
}

// WriteHeader implements http.ResponseWriter.
func (w *rpcWriter) WriteHeader(status int) {
	if status >= http.StatusBadRequest && strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		w.plain, w.code = &bytes.Buffer{}, status
		return
	}
	if w.becomesJSON() {
		w.stream = &bytes.Buffer{}
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer. The SDK writes an event, or a whole error, at once.
func (w *rpcWriter) Write(p []byte) (int, error) {
	if w.plain != nil {
		return w.plain.Write(p)
	}
	if w.becomesJSON() {
		w.stream = &bytes.Buffer{}
	}
	if w.stream != nil {
		return w.stream.Write(p)
	}
	_, err := w.ResponseWriter.Write(w.withID(p))
	return len(p), err
}

// becomesJSON reports whether what the SDK begins to write is a stream that the client does not accept.
func (w *rpcWriter) becomesJSON() bool {
	return w.asJSON && w.stream == nil && w.Header().Get("Content-Type") == "text/event-stream"
}

// withID returns what the SDK writes with the id as the client sent it.
func (w *rpcWriter) withID(p []byte) []byte {
	given := exactID(w.m.ID)
	if bytes.Equal(given, w.m.ID) {
		return p
	}
	return bytes.Replace(p, append([]byte(`"id":`), given...), append([]byte(`"id":`), w.m.ID...), 1)
}

// Flush implements http.Flusher.
func (w *rpcWriter) Flush() {
	if !w.asJSON {
		_ = http.NewResponseController(w.ResponseWriter).Flush()
	}
}

// Unwrap is for [http.ResponseController].
func (w *rpcWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// end writes what was kept back.
func (w *rpcWriter) end() error {
	if w.stream != nil {
		w.Header().Set("Content-Type", "application/json")
		_, err := w.ResponseWriter.Write(w.withID(responseIn(w.stream.Bytes())))
		return err
	}
	if w.plain == nil {
		return nil
	}
	text, code := strings.TrimSpace(w.plain.String()), jsonrpc.CodeInvalidRequest
	if w.m.Method != "" && w.m.ID == nil && strings.Contains(text, "JSON RPC") { // a notification is not answered, known or not
		w.Header().Del("Content-Type")
		w.ResponseWriter.WriteHeader(http.StatusAccepted)
		return nil
	}
	switch {
	case strings.Contains(text, "JSON RPC not handled"), strings.Contains(text, "method not found"):
		code = jsonrpc.CodeMethodNotFound
	case w.code >= http.StatusInternalServerError:
		code = jsonrpc.CodeInternalError
	}
	return surface.WriteJSON(w.ResponseWriter, w.code, rpcErrorOf(w.m.ID, code, text, nil))
}

// The kinds of calls that were refused and may be sent again later, or in another way.
const (
	rateLimited      = "rate_limited"
	quotaExceeded    = "quota_exceeded"
	approvalRequired = "approval_required"
	hooksRequired    = "hooks_required"
	invalidArguments = "invalid_arguments"
)

// refusal says why a call was not executed.
type refusal struct {
	Kind         string `json:"kind"`
	Message      string `json:"message"`
	RetryAfterMS int64  `json:"retry_after_ms,omitempty"`
}

// result returns the refusal as the result of the call, which models can read.
func (r refusal) result() *mcp.CallToolResult {
	text, _ := surface.Marshal(r) // strings and numbers: cannot fail
	return &mcp.CallToolResult{
		IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}, StructuredContent: json.RawMessage(text),
	}
}
