package wire

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

// ErrSilent is the cause of a call that ended because nothing came for Options.Silence.
var (
	ErrSilent  = errors.New("the provider stopped sending")
	errTooMuch = fmt.Errorf("the answer is larger than %d bytes", MaxAnswer)
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
	case errors.Is(context.Cause(call), ErrSilent):
		return &model.Error{Class: model.Transient, Err: ErrSilent}
	}
	return &model.Error{Class: model.Transient, Err: err}
}

// statusError reads an answer whose status says that the call failed.
func statusError(resp *http.Response) *model.Error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // what came is what there is
	d := Describe(body)
	return &model.Error{
		Class: Classify(resp.StatusCode, d), Status: resp.StatusCode, Header: callerHeader(resp.Header),
		Body: body, RetryAfter: retryAfter(resp.Header, time.Now()), Message: d.message,
		Credential: refusesCredential(resp.StatusCode, d),
	}
}

// AnswerError is a failure that came inside an answer of status 200.
func AnswerError(data []byte) *model.Error {
	d := Describe(data)
	return &model.Error{
		Class: Classify(d.status, d), Status: http.StatusOK,
		Body: bytes.Clone(data[:min(len(data), maxErrorBody)]), Message: d.message,
		Credential: refusesCredential(d.status, d),
	}
}

// Broken is an answer that is not what the dialect allows. The message goes on
// after the name of the provider.
func Broken(message string, err error) *model.Error {
	return &model.Error{Class: model.Transient, Status: http.StatusOK, Message: message, Err: err}
}

// Garbage is a chunk that is not valid JSON of the dialect.
func Garbage(data []byte) *model.Error {
	return Broken(fmt.Sprintf("sent a chunk that is not valid: %q", data[:min(len(data), maxQuoted)]), nil)
}

// page is an HTML page in place of an answer: of a login, say, or of a proxy.
func page() *model.Error {
	return Broken("answered with text/html, not JSON. Is base_url right?", nil)
}

// Cut is an answer that ended before the turn did.
func Cut() *model.Error {
	return Broken("ended the stream before the answer was complete", io.ErrUnexpectedEOF)
}

// SaysError reports whether the value of a member "error" is one.
func SaysError(v []byte) bool {
	return HasText(v) || IsKind(v, '{') && len(v) > 2
}

// Details are what an error body says, in any of the usual shapes:
//
//	{"error":{"message","type","code","status_code","innererror":{"code"}}}
//	{"error":"…"}   {"message":"…"}   {"detail":"…"}   {"detail":[{"msg":"…"}]}   [{…}]
type Details struct {
	message string
	words   string // code and type, in lower case
	status  int    // where the body names one
}

// Describe reads an error body.
func Describe(body []byte) Details {
	body = TrimSpace(body)
	if !Valid(body) {
		return Details{message: plainMessage(body)}
	}
	for _, e := range Elements(body) {
		body = e
		break
	}
	var d Details
	d.read(body, 0)
	for name, v := range Members(body) {
		switch string(name) {
		case "detail":
			d.sayFirst(detail(v))
		case "choices":
			for _, choice := range Elements(v) {
				d.read(Member(choice, "error"), 1)
			}
		}
	}
	return d
}

// read takes the members of an error, or of the object around it.
func (d *Details) read(object []byte, depth int) {
	if depth == 3 {
		return
	}
	for name, v := range Members(object) {
		switch string(name) {
		case "error":
			d.sayFirst(Text(v))
			d.read(v, depth+1)
		case "innererror":
			d.read(v, depth+1)
		case "message":
			d.sayFirst(Text(v))
		case "code", "type", "status", "status_code":
			if n := Number(bytes.Trim(v, `"`), 0); n >= 400 && n < 600 {
				d.status = int(n)
			}
			d.words += " " + strings.ToLower(Text(v))
		}
	}
}

func (d *Details) sayFirst(message string) {
	if d.message == "" {
		d.message = message
	}
}

func detail(v []byte) string {
	said := Text(v)
	for i, e := range Elements(v) {
		if i > 0 {
			said += "; "
		}
		said += Text(Member(e, "msg"))
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
