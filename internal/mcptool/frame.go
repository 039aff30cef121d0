package mcptool

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
)

// Codes of JSON-RPC errors.
const (
	codeInvalidRequest  = -32600
	codeMethodNotFound  = -32601
	codeInvalidParams   = -32602
	codeInternal        = -32603
	codeSessionNotFound = -32001 // of the official SDKs
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
		return !present(f.ID) || sameID(f.ID, id)
	}
	return f.Result != nil && sameID(f.ID, id)
}

func sameID(a, b json.RawMessage) bool { return bytes.Equal(a, b) || canonicalID(a) == canonicalID(b) }

// canonicalID returns the value of an id, which is equal for ids that servers and proxies take
// for the same: 3, 3.0 and "3".
func canonicalID(id json.RawMessage) string {
	if len(id) > 0 && id[0] != '"' {
		if n, ok := wholeNumber(string(id)); ok {
			return n
		}
		return string(id)
	}
	text := read[string](id)
	if n, ok := wholeNumber(text); ok {
		return n
	}
	return strconv.Quote(text)
}

// wholeNumber returns the digits of a JSON number that is an integer.
func wholeNumber(text string) (digits string, ok bool) {
	if !json.Valid([]byte(text)) || strings.TrimSpace(text) != text {
		return "", false
	}
	if _, err := strconv.ParseInt(text, 10, 64); err == nil {
		return text, true // the request's own form, without the limits of floating point
	}
	f, err := strconv.ParseFloat(text, 64)
	const exact = 1 << 53
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= exact {
		return "", false
	}
	return strconv.FormatInt(int64(f), 10), true
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

// present reports whether a JSON value exists and is not null.
func present(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }
