package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
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

// callError returns why a call ended early: the caller's context ended, the provider
// stopped sending, or the network failed. ctx is the caller's context, call that of
// the call.
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
	network, _ := errors.AsType[*net.OpError](err)
	return &model.Error{Class: model.Transient, Err: err, Unsent: network != nil && network.Op == "dial"}
}

// statusError reads an answer with an error status.
func statusError(resp *http.Response) *model.Error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // a part of it is enough
	d := Describe(body)
	if 300 <= resp.StatusCode && resp.StatusCode < 400 {
		d.message = redirected(resp.Header.Get("Location"))
	}
	if kind, _, _ := strings.Cut(resp.Header.Get("X-Amzn-Errortype"), ":"); kind != "" { // AWS has the type only there
		d = d.named(kind)
	}
	header := callerHeader(resp.Header)
	if header.Get("Retry-After") == "" && d.retry > 0 { // Google says it only in the body
		header.Set("Retry-After", strconv.Itoa(int(math.Ceil(d.retry.Seconds()))))
	}
	return &model.Error{
		Class: Classify(resp.StatusCode, d), Status: resp.StatusCode, Header: header,
		Body: body, RetryAfter: max(retryAfter(resp.Header, time.Now()), d.retry), Code: d.name(), Message: d.message,
		Credential: refusesCredential(resp.StatusCode, d),
	}
}

// redirected returns the message of a redirect. It names no query and no user of the
// target, which can be secret.
func redirected(location string) string {
	const advice = "redirects are not followed. Is base_url right?"
	to, err := url.Parse(location)
	if err != nil || location == "" {
		return "a redirect; " + advice
	}
	to.User, to.RawQuery, to.Fragment = nil, "", ""
	return fmt.Sprintf("a redirect to %.200q; %s", to.String(), advice)
}

// AnswerError returns the error that an answer with status 200 contains.
func AnswerError(data []byte) *model.Error { return AnswerErrorOf("", data) }

// AnswerErrorOf is [AnswerError] for an error whose type is not in its data; "" = it is.
func AnswerErrorOf(kind string, data []byte) *model.Error {
	d := Describe(data)
	if kind != "" {
		d = d.named(kind)
	}
	return &model.Error{
		Class: Classify(d.status, d), Status: http.StatusOK,
		Body: bytes.Clone(data[:min(len(data), maxErrorBody)]), RetryAfter: d.retry, Code: d.name(), Message: d.message,
		Credential: refusesCredential(d.status, d),
	}
}

// Broken returns the error of an answer that the dialect does not allow. The message
// continues a sentence that begins with the name of the provider.
func Broken(message string, err error) *model.Error {
	return &model.Error{Class: model.Transient, Status: http.StatusOK, Message: message, Err: err}
}

// unreadable is Broken for an answer that cannot be read. It was paid for, and the next one of the
// same provider would be no better: only another provider is asked.
func unreadable(message string) *model.Error {
	return &model.Error{Class: model.Target, Status: http.StatusOK, Message: message}
}

// Garbage returns the error of a chunk that is not valid.
func Garbage(data []byte) *model.Error {
	return unreadable(fmt.Sprintf("sent a chunk that is not valid: %q", data[:min(len(data), maxQuoted)]))
}

// Foreign returns the error of an answer that is valid JSON of another form than the dialect's: the
// error that it contains, or one with the message.
func Foreign(data []byte, message string) *model.Error {
	err := AnswerError(data)
	if err.Message != "" {
		return err
	}
	if err.Message = message; err.Code == "" { // it is not an error either
		err.Class = unreadable(message).Class
	}
	return err
}

// page returns the error of an HTML page, such as that of a login or a proxy.
func page() *model.Error {
	return unreadable("answered with text/html, not JSON. Is base_url right?")
}

// Cut returns the error of an answer that ended before the turn did.
func Cut() *model.Error {
	return Broken("ended the stream before the answer was complete", io.ErrUnexpectedEOF)
}

// SaysError reports whether the value of a member "error" is an error: a text or an
// object that is not empty.
func SaysError(v []byte) bool {
	return jsonscan.HasText(v) || jsonscan.IsKind(v, '{') && len(v) > 2
}

// Details are the fields of an error body in any of the common forms:
//
//	{"error":{"message","type","code","status_code","innererror":{"code"}}}
//	{"error":"…"}   {"message":"…"}   {"detail":"…"}   {"detail":[{"msg":"…"}]}   [{…}]
//	{"error":{"code":429,"message","status":"RESOURCE_EXHAUSTED","details":[{"retryDelay":"48s"}]}}
type Details struct {
	message string
	code    string        // of the error; "" = none, or only a number
	kind    string        // its type
	words   string        // code and type, in lower case
	status  int           // where the body names one
	retry   time.Duration // how long the body asks to wait; 0 = it does not say
}

// The limits on what is kept of an error in bytes: it is logged, stored and sent to
// clients.
const (
	maxName    = 100
	maxMessage = 8 << 10
	maxWords   = 1 << 10
)

// named returns the details of an error with the type.
func (d Details) named(kind string) Details {
	d.kind = kind
	d.words += " " + strings.ToLower(kind[:min(len(kind), maxName)])
	return d
}

// name returns the provider's name for the error: its code, or else its type.
func (d Details) name() string {
	name := d.code
	if name == "" {
		name = d.kind
	}
	return strings.ToValidUTF8(name[:min(len(name), maxName)], "")
}

// Describe reads an error body.
func Describe(body []byte) Details {
	body = jsonscan.TrimSpace(body)
	if !jsonscan.Valid(body) {
		return Details{message: plainMessage(body)}
	}
	for _, e := range jsonscan.Elements(body) {
		body = e
		break
	}
	var d Details
	d.read(body, 0)
	for name, v := range jsonscan.Members(body) {
		switch string(name) {
		case "detail":
			d.sayFirst(detail(v))
		case "choices":
			for _, choice := range jsonscan.Elements(v) {
				d.read(jsonscan.Member(choice, "error"), 1)
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
	for name, v := range jsonscan.Members(object) {
		switch string(name) {
		case "error":
			d.sayFirst(jsonscan.Text(v))
			d.read(v, depth+1)
		case "innererror":
			d.read(v, depth+1)
		case "message":
			d.sayFirst(jsonscan.Text(v))
		case "details":
			d.readDetails(v)
		case "code", "type", "status", "status_code":
			n := jsonscan.Number(bytes.Trim(v, `"`), 0)
			if n >= 400 && n < 600 {
				d.status = int(n)
			}
			switch text := jsonscan.Text(v); {
			case n != 0 || depth == 0 && text == "error": // the type of the object around an Anthropic error
			case string(name) == "code" && d.code == "":
				d.code = text
			case string(name) == "type" && d.kind == "", string(name) == "status" && d.kind == "" && isCanonical(text):
				d.kind = text
			}
			if len(d.words) < maxWords {
				text := jsonscan.Text(v)
				d.words += " " + strings.ToLower(text[:min(len(text), maxWords)])
			}
		}
	}
}

// readDetails reads the details of a Google error, of which RetryInfo says how long to
// wait and ErrorInfo has a more specific reason, such as API_KEY_INVALID:
// https://cloud.google.com/apis/design/errors.
func (d *Details) readDetails(v []byte) {
	for _, e := range jsonscan.Elements(v) {
		if wait, err := time.ParseDuration(jsonscan.Text(jsonscan.Member(e, "retryDelay"))); err == nil {
			d.retry = min(max(wait, 0), maxRetryAfter)
		}
		if reason := jsonscan.Text(jsonscan.Member(e, "reason")); len(d.words) < maxWords {
			d.words += " " + strings.ToLower(reason[:min(len(reason), maxWords)])
		}
	}
}

// isCanonical reports whether a text is a status code of Google's APIs, such as
// RESOURCE_EXHAUSTED.
func isCanonical(text string) bool {
	return strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == "" && text != ""
}

func (d *Details) sayFirst(message string) {
	if d.message == "" {
		d.message = strings.ToValidUTF8(message[:min(len(message), maxMessage)], "\uFFFD")
	}
}

func detail(v []byte) string {
	said := jsonscan.Text(v)
	for i, e := range jsonscan.Elements(v) {
		if len(said) > maxMessage {
			break
		}
		if i > 0 {
			said += "; "
		}
		said += jsonscan.Text(jsonscan.Member(e, "msg"))
	}
	return said
}

// plainMessage returns a body that is not JSON if it is short enough for a message.
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
		case name == "Retry-After", name == "Retry-After-Ms", name == "Content-Type", name == "X-Request-Id", name == "Request-Id", name == "X-Amzn-Requestid",
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
