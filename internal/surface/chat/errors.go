package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
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

	// Of outbound_ssrf_blocked: the MCP server, where it is, and what can allow it.
	Server  string `json:"server,omitempty"`
	URL     string `json:"url,omitempty"`
	Setting string `json:"setting,omitempty"`
}

// WriteError answers with err in the dialect's form. An error that is no
// [fault.Error] is hidden.
func WriteError(w http.ResponseWriter, err error) {
	f := fault.From(err)
	if n := seconds(f.RetryAfter); n > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(n))
	}
	fault.Note(w, f.Reason)
	write(w, wires[f.Code].status, append(bodyOf(f), '\n'))
}

// bodyOf returns the dialect's error object for err.
func bodyOf(err error) []byte {
	f := fault.From(err)
	return marshal(errorBody{errorObject{
		Message: f.Message, Type: wires[f.Code].kind, Param: optional(f.Param), Code: optional(f.Reason), RetryAfterSecs: seconds(f.RetryAfter),
		Server: f.Server, URL: f.URL, Setting: f.Setting,
	}})
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
			if name != "Content-Type" || up.readable() {
				w.Header()[name] = values
			}
		}
	}
	if final(end) {
		w.Header().Set("X-Should-Retry", "false")
	}
	write(w, status, body)
}

// final reports whether a client must not send the request again by itself: a tool
// that may write has run, somebody has cancelled the run, the gateway has used up its
// own attempts, or only the operator can help.
func final(end event.Finished) bool {
	return end.SideEffects || end.Reason == event.Cancelled || end.GaveUp ||
		end.Failure != nil && end.Failure.Code == "upstream_credential_refused"
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

// readable reports whether a client of the dialect can read the body: it is neither
// empty nor a web page.
func (e *errorAnswer) readable() bool {
	body := bytes.TrimSpace(e.Body)
	return len(body) > 0 && body[0] != '<'
}

// endBody returns the status and the body for a run that failed. What the
// provider answered is passed on as it is.
func endBody(end event.Finished, mayAddress bool) (int, []byte) {
	f := faultOf(end, mayAddress)
	up := upstream(end)
	switch {
	case up == nil:
		return wires[f.Code].status, append(bodyOf(f), '\n')
	case !up.readable():
		return up.Status, append(bodyOf(f), '\n')
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
		return blocked(f, mayAddress)
	case event.ModelError, event.ToolAbort:
		code = fault.Upstream
	case event.ServerUnavailable:
		code = fault.Unavailable
	case event.Cancelled, event.CallerGone:
		code = fault.Conflict
	case event.Memory:
		code = boundCode(f.Code)
	}
	return fault.New(code, f.Code, "%s", message)
}

// boundCode is the code of a refusal by the bound of a run, an org or the
// process.
func boundCode(reason string) fault.Code {
	switch reason {
	case "org_memory_exceeded":
		return fault.Limited
	case "overloaded":
		return fault.Unavailable
	}
	return fault.TooLarge
}

// blocked names what was refused, and what can be done. Addresses and URLs are for
// those who may see them.
func blocked(f *event.Failure, mayAddress bool) *fault.Error {
	message := f.Code + ": " + f.Message
	if mayAddress && f.Address != "" {
		message += ":" + f.Address
	}
	out := fault.New(fault.Forbidden, f.Code, "%s", message)
	if f.Server == "" {
		return out
	}
	out.Server, out.Setting = f.Server, f.Setting
	out.Message += fmt.Sprintf("; the outbound policy refuses the MCP server %q", f.Server)
	if mayAddress && f.URL != "" {
		out.URL = f.URL
		out.Message += " at " + f.URL
	}
	switch ip, err := netip.ParseAddr(f.Address); {
	case f.Setting == "" && f.URL == "": // a journal of release 0.1 does not say what would help
	case f.Setting == "":
		out.Message += "; correct the server's URL"
	case mayAddress && err == nil:
		out.Message += fmt.Sprintf("; the operator can allow it with %s: [%q]", f.Setting, netip.PrefixFrom(ip, ip.BitLen()))
	default:
		out.Message += fmt.Sprintf("; the operator can allow its address with %s", f.Setting)
	}
	return out
}
