package chat

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// wire is how one code looks to a client.
type wire struct {
	status int
	kind   string // the "type" of the dialect
}

// wires maps codes to what the official clients turn into their error classes.
var wires = map[fault.Code]wire{
	fault.Invalid:       {http.StatusBadRequest, "invalid_request_error"},
	fault.Unprocessable: {http.StatusUnprocessableEntity, "invalid_request_error"},
	fault.TooLarge:      {http.StatusRequestEntityTooLarge, "invalid_request_error"},
	fault.Header:        {http.StatusRequestHeaderFieldsTooLarge, "invalid_request_error"},
	fault.MediaType:     {http.StatusUnsupportedMediaType, "invalid_request_error"},
	fault.Timeout:       {http.StatusRequestTimeout, "invalid_request_error"},
	fault.Misdirected:   {http.StatusMisdirectedRequest, "invalid_request_error"},
	fault.Unauthorized:  {http.StatusUnauthorized, "authentication_error"},
	fault.Forbidden:     {http.StatusForbidden, "permission_error"},
	fault.NotFound:      {http.StatusNotFound, "invalid_request_error"},
	fault.Method:        {http.StatusMethodNotAllowed, "invalid_request_error"},
	fault.Conflict:      {http.StatusConflict, "invalid_request_error"},
	fault.Limited:       {http.StatusTooManyRequests, "rate_limit_error"},
	fault.Upstream:      {http.StatusBadGateway, "upstream_error"},
	fault.Unavailable:   {http.StatusServiceUnavailable, "unavailable_error"},
	fault.Internal:      {http.StatusInternalServerError, "server_error"},
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
}

// WriteError answers with err in the dialect's form. An error that is no
// [fault.Error] is hidden.
func WriteError(w http.ResponseWriter, err error) {
	f := fault.From(err)
	if n := seconds(f.RetryAfter); n > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(n))
	}
	write(w, wires[f.Code].status, bodyOf(f))
}

// bodyOf returns the dialect's error object for err.
func bodyOf(err error) []byte {
	f := fault.From(err)
	return marshal(errorBody{errorObject{f.Message, wires[f.Code].kind, optional(f.Param), optional(f.Reason), seconds(f.RetryAfter)}})
}

// seconds rounds up: who comes back too early is refused again.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func write(w http.ResponseWriter, status int, body []byte) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// writeEnd answers with the failure that ended a run before anything was sent.
func writeEnd(w http.ResponseWriter, end event.Finished, mayAddress bool) {
	status, body := endBody(end, mayAddress)
	if up := upstream(end); up != nil {
		for name, values := range up.Header {
			w.Header()[name] = values
		}
	}
	if end.SideEffects || end.Reason == event.Cancelled {
		w.Header().Set("X-Should-Retry", "false") // a tool that may write has run, or somebody wants no run
	}
	write(w, status, body)
}

// upstream returns the provider's own error answer, where the client gets it.
func upstream(end event.Finished) *errorAnswer {
	f := end.Failure
	if f == nil || f.Upstream == nil || f.Upstream.Status < 400 {
		return nil
	}
	return &errorAnswer{f.Upstream.Status, f.Upstream.Header, f.Upstream.Body}
}

type errorAnswer struct {
	Status int
	Header http.Header
	Body   []byte
}

// endBody returns the status and the body for a run that failed. What the
// provider answered is passed on as it is.
func endBody(end event.Finished, mayAddress bool) (int, []byte) {
	f := faultOf(end, mayAddress)
	up := upstream(end)
	switch {
	case up == nil:
		return wires[f.Code].status, bodyOf(f)
	case len(up.Body) == 0:
		return up.Status, bodyOf(f)
	}
	return up.Status, up.Body
}

// endFrame returns the error object for a stream that has begun: the provider's
// own if it is one that a client recognises.
func endFrame(end event.Finished, mayAddress bool) []byte {
	var object struct{ Error json.RawMessage }
	if up := upstream(end); up != nil && json.Unmarshal(up.Body, &object) == nil && object.Error != nil {
		return marshal(json.RawMessage(up.Body)) // compact: one line
	}
	return bodyOf(faultOf(end, mayAddress))
}

// faultOf maps why a run failed to an error.
func faultOf(end event.Finished, mayAddress bool) *fault.Error {
	f := end.Failure
	if f == nil {
		f = &event.Failure{Code: string(end.Reason), Message: "the run failed"}
	}
	message := f.Message
	code := fault.Internal
	switch end.Reason {
	case event.Invalid:
		code = fault.Unprocessable
	case event.TooLong:
		code = fault.Invalid
	case event.Blocked, event.HookDenied:
		code = fault.Forbidden
		message = f.Code + ": " + f.Message
		if mayAddress && f.Address != "" {
			message += ":" + f.Address
		}
	case event.ModelError, event.ToolAbort:
		code = fault.Upstream
	case event.ServerUnavailable:
		code = fault.Unavailable
	case event.Cancelled, event.CallerGone:
		code = fault.Conflict
	}
	return fault.New(code, f.Code, "%s", message)
}
