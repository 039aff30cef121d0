package surface

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
	"github.com/turnpike-gateway/turnpike/model"
)

// writeEnd answers with the failure that ended a run before anything was sent.
func (x *Errors) writeEnd(w http.ResponseWriter, end event.Finished, mayAddress bool) {
	status := x.EndStatus(w.Header(), end, mayAddress)
	_, body := x.endBody(end, mayAddress)
	write(w, status, body)
}

// EndStatus returns the HTTP status of a run that failed before anything was sent, and sets the fields of the header that belong to it.
func (x *Errors) EndStatus(h http.Header, end event.Finished, mayAddress bool) int {
	if up := upstream(end); up != nil {
		for name, values := range up.Header {
			if name != "Content-Type" || x.passes(up) {
				h[name] = values
			}
		}
	}
	if f := end.Failure; f != nil && !f.RetryAt.IsZero() {
		if n := seconds(time.Until(f.RetryAt)); n > 0 {
			h.Set("Retry-After", strconv.Itoa(n))
		}
	}
	if final(end) {
		h.Set("X-Should-Retry", "false")
	}
	status, _ := x.endBody(end, mayAddress)
	return status
}

// final reports whether a client must not send the request again by itself: a tool
// that may write has run, somebody has cancelled the run, a budget is used up, the gateway has used up its
// own attempts, or only the operator can help.
func final(end event.Finished) bool {
	return end.SideEffects || end.Reason == event.Cancelled || end.Reason == event.BudgetExceeded || end.GaveUp ||
		end.Failure != nil && end.Failure.Code == "upstream_credential_refused"
}

// upstream returns the provider's answer that refused the call; nil without one.
func upstream(end event.Finished) *model.Error {
	if f := end.Failure; f != nil && f.Upstream != nil && f.Upstream.Status >= 400 {
		return f.Upstream
	}
	return nil
}

// readable reports whether the body of a provider's error can be read: it is neither
// empty nor a web page.
func readable(e *model.Error) bool {
	body := bytes.TrimSpace(e.Body)
	return len(body) > 0 && body[0] != '<'
}

// passes reports whether a client gets the body of a provider's error unchanged: it
// can be read, and it is of the API's dialect.
func (x *Errors) passes(e *model.Error) bool { return readable(e) && e.Dialect == x.Dialect }

// endBody returns the status and the body for a run that failed. The status is that
// of the provider's answer, where there is one.
func (x *Errors) endBody(end event.Finished, mayAddress bool) (int, []byte) {
	f := faultOf(end, mayAddress)
	up := upstream(end)
	switch {
	case up == nil:
		return statuses[f.Code], append(x.Body(f), '\n')
	case x.passes(up):
		return up.Status, up.Body
	case readable(up):
		return up.Status, append(x.rewritten(up, end, f), '\n')
	}
	return up.Status, append(x.Body(f), '\n')
}

// endFrame returns the error object for a stream that has begun: the provider's
// own if it is one that a client recognises.
func (x *Errors) endFrame(end event.Finished, mayAddress bool) []byte {
	f := faultOf(end, mayAddress)
	if end.Failure == nil || end.Failure.Upstream == nil {
		return x.Body(f)
	}
	up := end.Failure.Upstream
	var object struct{ Error json.RawMessage }
	switch {
	case x.passes(up) && up.Status >= 400 && json.Unmarshal(up.Body, &object) == nil && object.Error != nil:
		compact, _ := Marshal(json.RawMessage(up.Body)) // one line
		return compact
	case readable(up) && up.Dialect != x.Dialect: // also an error inside an answer
		return x.rewritten(up, end, f)
	}
	return x.Body(f)
}

// End returns the error object for the end of a run that failed.
func (x *Errors) End(end event.Finished, mayAddress bool) []byte { return x.endFrame(end, mayAddress) }

// rewritten returns a provider's error of another dialect in the words of this API, with
// the provider's message and its name for the error. f is the gateway's own account of
// it.
func (x *Errors) rewritten(up *model.Error, end event.Finished, f *fault.Error) []byte {
	out := Error{Message: up.Message, Type: x.Types[codeOf(up.Status)], Code: up.Code}
	if out.Message == "" {
		out.Message = f.Message
	}
	if end.Reason == event.TooLong || up.Code == "" {
		out.Code = x.code(f.Reason)
	}
	if n, err := strconv.Atoi(http.Header(up.Header).Get("Retry-After")); err == nil && n > 0 {
		out.RetryAfter = n
	}
	return x.encode(out)
}

// codeOf returns the code for the status of a provider's error.
func codeOf(status int) fault.Code {
	switch {
	case status == http.StatusUnauthorized:
		return fault.Unauthorized
	case status == http.StatusForbidden:
		return fault.Forbidden
	case status == http.StatusTooManyRequests:
		return fault.Limited
	case 400 <= status && status < 500:
		return fault.Invalid
	}
	return fault.Upstream
}

// EndFault returns the error that a failed run is answered with, before anything was sent.
func EndFault(end event.Finished, mayAddress bool) error { return faultOf(end, mayAddress) }

// faultOf returns the error that a failed run is answered with: whose fault it is, and
// what was wrong. It is the same for every surface.
func faultOf(end event.Finished, mayAddress bool) *fault.Error {
	f := end.Failure
	if f == nil {
		f = &event.Failure{Code: string(end.Reason), Message: "the run failed"}
	}
	message := f.Message
	code := fault.Internal
	switch end.Reason {
	case event.Invalid:
		if f.Code == "tool_choice_unavailable" {
			return fault.New(fault.Invalid, f.Code, "%s", message).In("tool_choice")
		}
		code = fault.Unprocessable
	case event.TooLong:
		code = fault.Invalid
	case event.HookDenied:
		code = fault.Forbidden
	case event.Blocked:
		return blocked(f, mayAddress)
	case event.ModelError, event.ToolAbort:
		code = fault.Upstream
		if f.Param != "" { // the provider was not called
			code = fault.Invalid
		}
	case event.ServerUnavailable:
		code = fault.Unavailable
	case event.Cancelled, event.CallerGone:
		code = fault.Conflict
	case event.Memory:
		code = boundCode(f.Code)
	case event.BudgetExceeded:
		code = fault.Limited
	}
	return fault.New(code, f.Code, "%s", message).In(f.Param)
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
	if f.Param != "" {
		out.Setting = f.Setting
		out.Message += "; the outbound policy refuses the URL at " + f.Param
		return out.In(f.Param)
	}
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
	case f.Setting == "" && f.URL == "": // nothing is known that would help
	case f.Setting == "":
		out.Message += "; correct the server's URL"
	case mayAddress && err == nil:
		out.Message += fmt.Sprintf("; the operator can allow it with %s: [%q]", f.Setting, netip.PrefixFrom(ip, ip.BitLen()))
	default:
		out.Message += fmt.Sprintf("; the operator can allow its address with %s", f.Setting)
	}
	return out
}
