package chat

import (
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/model"
)

// types has the "type" of the dialect for each error code. The official clients turn
// statuses and types into their error classes.
var types = map[fault.Code]string{
	fault.Invalid:       "invalid_request_error",
	fault.Unprocessable: "invalid_request_error",
	fault.TooLarge:      "invalid_request_error",
	fault.Header:        "invalid_request_error",
	fault.MediaType:     "invalid_request_error",
	fault.Timeout:       "invalid_request_error",
	fault.Misdirected:   "invalid_request_error",
	fault.Unauthorized:  "authentication_error",
	fault.Forbidden:     "permission_error",
	fault.NotFound:      "invalid_request_error",
	fault.Method:        "invalid_request_error",
	fault.Conflict:      "invalid_request_error",
	fault.Limited:       "rate_limit_error",
	fault.Upstream:      "upstream_error",
	fault.Unavailable:   "unavailable_error",
	fault.Internal:      "server_error",
}

// finishReasons has the "finish_reason" of the dialect for each reason.
var finishReasons = map[event.Reason]string{
	"":                "stop",
	event.Complete:    "stop",
	event.ClientCalls: "tool_calls",
	event.Refused:     "content_filter",
	event.OutputCut:   "length",
	event.MaxRounds:   "length",
	event.MaxCalls:    "length",
	event.Deadline:    "length",
	event.Tokens:      "length",
	event.Money:       "length",
	event.NoProgress:  "length",
}

type errorBody struct {
	Error errorObject `json:"error"`
}

type errorObject struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`

	RetryAfterSecs int `json:"retry_after_secs,omitempty"`

	// Of outbound_ssrf_blocked: the MCP server, where it is, and what can allow it.
	Server  string `json:"server,omitempty"`
	URL     string `json:"url,omitempty"`
	Setting string `json:"setting,omitempty"`
}

// Errors returns the error format of the dialect.
func Errors() *surface.Errors {
	return &surface.Errors{Types: types, Dialect: model.DialectChat, Object: func(e surface.Error) any {
		return errorBody{errorObject{
			Message: e.Message, Type: e.Type, Param: optional(e.Param), Code: optional(e.Code), RetryAfterSecs: e.RetryAfter,
			Server: e.Server, URL: e.URL, Setting: e.Setting,
		}}
	}}
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
