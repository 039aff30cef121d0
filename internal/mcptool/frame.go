package mcptool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
)

// Codes of JSON-RPC errors.
const (
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
)

// frame is one JSON-RPC message. Params and Result are the bytes as sent.
type frame struct {
	ID     json.RawMessage `json:"id"`
	Method *string         `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// decodeFrame decodes one JSON-RPC message. Bytes that are not valid UTF-8 become U+FFFD. A
// message in valid UTF-8 keeps its bytes.
func decodeFrame(data []byte) (frame, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if !utf8.Valid(data) {
		data = bytes.ToValidUTF8(data, []byte("\ufffd"))
	}
	var f frame
	if err := json.Unmarshal(data, &f); err != nil {
		return frame{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return f, nil
}

// requested returns the method and the id of a message that this process has encoded: valid
// JSON, with each member once. An answer has no method, and a notification no id.
func requested(message []byte) (method string, id json.RawMessage) {
	for name, value := range jsonscan.Members(jsonscan.TrimSpace(message)) {
		switch string(name) {
		case "method":
			method = jsonscan.Text(value)
		case "id":
			id = value
		}
	}
	return method, id
}

// answers reports whether f answers the request with the id. An error without an id does: the
// server could not read the id of the request.
func (f frame) answers(id json.RawMessage) bool {
	switch {
	case f.Method != nil:
		return false
	case present(f.Error):
		return bytes.Equal(f.ID, id) || !present(f.ID)
	}
	return f.Result != nil && bytes.Equal(f.ID, id)
}

// asks reports whether f is a request of the server that needs an answer.
func (f frame) asks() bool {
	return f.Method != nil && present(f.ID) && strings.ContainsAny(string(f.ID[:1]), `"-0123456789`)
}

// announces reports whether f is the notification that the server's tools have changed.
func (f frame) announces() bool { return f.Method != nil && *f.Method == methodListChanged }

// rpcError is a JSON-RPC error object.
type rpcError struct {
	Code    float64         `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// decodeRPCError decodes an error object. Of an invalid one it keeps what it can decode.
func decodeRPCError(raw json.RawMessage) *rpcError {
	var e rpcError
	if err := json.Unmarshal(raw, &e); err == nil {
		return &e
	}
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		text = "malformed error object"
	}
	return &rpcError{Code: codeInternal, Message: text}
}

// aboutRequest reports whether the error is about the request itself.
func (e *rpcError) aboutRequest() bool {
	return e.Code == codeMethodNotFound || e.Code == codeInvalidParams
}

// aboutSession reports whether the error means that the session is unknown. Some servers send
// such an error instead of 404.
func (e *rpcError) aboutSession() bool {
	return strings.Contains(strings.ToLower(e.Message), "session")
}

// present reports whether a JSON value exists and is not null.
func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
