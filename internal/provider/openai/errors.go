package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/model"
)

const (
	// maxErrorBody is how much of an error answer is kept.
	maxErrorBody = 64 << 10
	// maxRetryAfter bounds what a provider may ask for.
	maxRetryAfter = 24 * time.Hour
	maxQuoted     = 200
)

var (
	errSilent  = errors.New("the provider fell silent")
	errTooMuch = fmt.Errorf("answer of more than %d bytes", maxAnswer)
)

// callError says why a call broke off: the caller left, the provider fell
// silent, or the network failed. ctx is the caller's, call the call's own.
func callError(ctx, call context.Context, err error) error {
	var known *model.Error
	switch {
	case ctx.Err() != nil:
		return &model.Error{Class: model.Gone, Err: ctx.Err()}
	case errors.As(err, &known):
		return known
	case errors.Is(context.Cause(call), errSilent):
		return &model.Error{Class: model.Transient, Err: errSilent}
	}
	return &model.Error{Class: model.Transient, Err: err}
}

// statusError reads an answer whose status says that the call failed.
func statusError(resp *http.Response) *model.Error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // what came is what there is
	d := describe(body)
	return &model.Error{
		Class: classify(resp.StatusCode, d), Status: resp.StatusCode, Header: callerHeader(resp.Header),
		Body: body, RetryAfter: retryAfter(resp.Header, time.Now()), Message: d.message,
		Credential: refusesCredential(resp.StatusCode, d),
	}
}

// answerError is a failure that came inside an answer of status 200.
func answerError(data []byte) *model.Error {
	d := describe(data)
	return &model.Error{
		Class: classify(d.status, d), Status: http.StatusOK,
		Body: bytes.Clone(data[:min(len(data), maxErrorBody)]), Message: d.message,
		Credential: refusesCredential(d.status, d),
	}
}

// brokenAnswer is an answer that is not what the dialect allows. The message goes on
// after the name of the provider.
func brokenAnswer(message string, err error) *model.Error {
	return &model.Error{Class: model.Transient, Status: http.StatusOK, Message: message, Err: err}
}

func garbage(data []byte) *model.Error {
	return brokenAnswer(fmt.Sprintf("sent a chunk that is not valid: %q", data[:min(len(data), maxQuoted)]), nil)
}

// page is an HTML page in place of an answer: of a login, say, or of a proxy.
func page() *model.Error {
	return brokenAnswer("answered with text/html, not JSON. Is base_url right?", nil)
}

func cut() *model.Error {
	return brokenAnswer("ended the stream before the answer was complete", io.ErrUnexpectedEOF)
}

// saysError reports whether the value of a member "error" is one.
func saysError(v []byte) bool {
	return hasText(v) || isKind(v, '{') && len(v) > 2
}

// details are what an error body says, in any of the usual shapes:
//
//	{"error":{"message","type","code","status_code","innererror":{"code"}}}
//	{"error":"…"}   {"message":"…"}   {"detail":"…"}   {"detail":[{"msg":"…"}]}   [{…}]
type details struct {
	message string
	words   string // code and type, in lower case
	status  int    // where the body names one
}

func describe(body []byte) details {
	body = trimSpace(body)
	if !valid(body) {
		return details{message: plainMessage(body)}
	}
	for _, e := range elements(body) {
		body = e
		break
	}
	var d details
	d.read(body, 0)
	for name, v := range members(body) {
		switch string(name) {
		case "detail":
			d.sayFirst(detail(v))
		case "choices":
			for _, choice := range elements(v) {
				d.read(member(choice, "error"), 1)
			}
		}
	}
	return d
}

// read takes the members of an error, or of the object around it.
func (d *details) read(object []byte, depth int) {
	if depth == 3 {
		return
	}
	for name, v := range members(object) {
		switch string(name) {
		case "error":
			d.sayFirst(text(v))
			d.read(v, depth+1)
		case "innererror":
			d.read(v, depth+1)
		case "message":
			d.sayFirst(text(v))
		case "code", "type", "status", "status_code":
			if n := number(bytes.Trim(v, `"`), 0); n >= 400 && n < 600 {
				d.status = int(n)
			}
			d.words += " " + strings.ToLower(text(v))
		}
	}
}

func (d *details) sayFirst(message string) {
	if d.message == "" {
		d.message = message
	}
}

func detail(v []byte) string {
	said := text(v)
	for i, e := range elements(v) {
		if i > 0 {
			said += "; "
		}
		said += text(member(e, "msg"))
	}
	return said
}

// plainMessage returns a body that is no JSON where it is short enough to be
// a message and no page.
func plainMessage(body []byte) string {
	switch {
	case bytes.HasPrefix(body, []byte("<")):
		return "a web page, not JSON. Is base_url right?"
	case len(body) > maxQuoted:
		return ""
	}
	return strings.ToValidUTF8(string(body), "\uFFFD")
}

// callerHeader returns the fields that a caller may see.
func callerHeader(h http.Header) http.Header {
	kept := http.Header{}
	for name, values := range h {
		switch {
		case name == "Retry-After", name == "Retry-After-Ms", name == "Content-Type", name == "X-Request-Id",
			strings.HasPrefix(name, "X-Ratelimit-"):
			kept[name] = values
		}
	}
	return kept
}

// retryAfter returns how long the provider asks to wait; 0 when it does not say.
func retryAfter(h http.Header, now time.Time) time.Duration {
	var wait time.Duration
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		wait = time.Duration(min(ms, float64(maxRetryAfter.Milliseconds())) * float64(time.Millisecond))
	} else if s, err := strconv.ParseFloat(h.Get("Retry-After"), 64); err == nil && s > 0 {
		wait = time.Duration(min(s, maxRetryAfter.Seconds()) * float64(time.Second))
	} else if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}
