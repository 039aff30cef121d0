package script

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/model"
)

// TurnID returns the id of a turn; number counts the turns of a script, from 1.
func TurnID(number int) string { return fmt.Sprintf("chatcmpl-script-%d", number) }

// DefaultStop returns how a turn ends whose story does not say it.
func DefaultStop(calls int) model.Stop {
	if calls > 0 {
		return model.StopCalls
	}
	return model.StopEnd
}

// AsError is the failure as an adapter of the chat dialect reports it; begun
// says that it came inside an answer of status 200.
func (f Failure) AsError(begun bool) *model.Error {
	e := &model.Error{
		Class: f.class(), Status: f.Status, Header: f.Header(), Body: f.Body(), Dialect: model.DialectChat,
		RetryAfter: time.Duration(f.RetryAfter) * time.Second, Message: f.Words(),
	}
	if begun {
		e.Status, e.Header, e.RetryAfter = http.StatusOK, nil, 0
	}
	return e
}

func (f Failure) class() model.ErrorClass {
	switch f.Status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return model.Transient
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusGone:
		return model.Target
	}
	switch {
	case f.Status >= 500:
		return model.Transient
	case strings.Contains(strings.ToLower(f.Message), "maximum context length"):
		return model.TooLong
	}
	return model.Invalid
}

// Header is that of the answer.
func (f Failure) Header() http.Header {
	h := http.Header{"Content-Type": {"application/json"}}
	if f.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	return h
}

// Words are the message, or those of the status.
func (f Failure) Words() string {
	if f.Message == "" {
		return strings.ToLower(http.StatusText(f.Status))
	}
	return f.Message
}

// Body is the error object of the chat dialect.
func (f Failure) Body() []byte {
	kind := "invalid_request_error"
	switch {
	case f.Status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case f.Status == http.StatusUnauthorized:
		kind = "authentication_error"
	case f.Status >= 500:
		kind = "server_error"
	}
	return OpenAIError(f.Words(), kind, "", strconv.Itoa(f.Status))
}

// OpenAIError is an error object; a param or code that is empty is null.
func OpenAIError(message, kind, param, code string) []byte {
	type details struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    *string `json:"code"`
	}
	d := details{Message: message, Type: kind}
	if param != "" {
		d.Param = &param
	}
	if code != "" {
		d.Code = &code
	}
	out, _ := json.Marshal(map[string]details{"error": d}) // strings can always be written
	return out
}

// Halves cuts a text in two, never inside a character, and leaves out empty
// halves.
func Halves(s string) []string {
	half := len(s) / 2
	for half > 0 && s[half]&0xC0 == 0x80 {
		half--
	}
	var parts []string
	for _, part := range []string{s[:half], s[half:]} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

// Usage returns the usage that a turn reports.
func (t Turn) Usage() model.Usage {
	var u model.Usage
	for _, s := range t.Steps {
		if s.Verb == SetUsage {
			u = s.Usage
		}
	}
	return u
}
