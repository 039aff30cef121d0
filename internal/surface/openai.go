package surface

import "github.com/turnpike-gateway/turnpike/internal/fault"

// openAITypes has the "type" of the OpenAI APIs for each error code. The official clients
// turn statuses and types into their error classes.
var openAITypes = map[fault.Code]string{
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
	fault.Gone:          "invalid_request_error",
	fault.Method:        "invalid_request_error",
	fault.Conflict:      "invalid_request_error",
	fault.Limited:       "rate_limit_error",
	fault.Upstream:      "upstream_error",
	fault.NotConfigured: "server_error",
	fault.Unavailable:   "unavailable_error",
	fault.Internal:      "server_error",
}

// OpenAIError is the error object of the OpenAI APIs: {"error":{"message","type","param","code"}}
// with members of the gateway.
type OpenAIError struct {
	Error OpenAIErrorObject `json:"error"`
}

// OpenAIErrorObject is what an [OpenAIError] says. Param and Code are null if there is none.
type OpenAIErrorObject struct {
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

// OpenAIErrors returns the error format of the OpenAI APIs. dialect is that of the API
// whose providers have the same format.
func OpenAIErrors(dialect string) *Errors {
	return &Errors{Types: openAITypes, Dialect: dialect, Object: func(e Error) any {
		return OpenAIError{OpenAIErrorObject{
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
