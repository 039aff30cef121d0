package surface

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// statuses maps codes to what the official clients turn into their error classes. They
// are the same for every surface.
var statuses = map[fault.Code]int{
	fault.Invalid:       http.StatusBadRequest,
	fault.Unprocessable: http.StatusUnprocessableEntity,
	fault.TooLarge:      http.StatusRequestEntityTooLarge,
	fault.Header:        http.StatusRequestHeaderFieldsTooLarge,
	fault.MediaType:     http.StatusUnsupportedMediaType,
	fault.Timeout:       http.StatusRequestTimeout,
	fault.Misdirected:   http.StatusMisdirectedRequest,
	fault.Unauthorized:  http.StatusUnauthorized,
	fault.Forbidden:     http.StatusForbidden,
	fault.NotFound:      http.StatusNotFound,
	fault.Gone:          http.StatusGone,
	fault.Method:        http.StatusMethodNotAllowed,
	fault.Conflict:      http.StatusConflict,
	fault.Limited:       http.StatusTooManyRequests,
	fault.Upstream:      http.StatusBadGateway,
	fault.NotConfigured: http.StatusNotImplemented,
	fault.Unavailable:   http.StatusServiceUnavailable,
	fault.Internal:      http.StatusInternalServerError,
}

// Errors is the error format of an API: a table of its words, and its object. Every error
// of a [Route] has the format of the route, also one that is found before the endpoint is
// called.
type Errors struct {
	// Types has the API's word for the type of each error code. Nil = it has no types.
	Types map[fault.Code]string
	// Codes has the API's own words for reasons such as model_not_found. A reason that
	// is not in it is used as it is.
	Codes map[string]string
	// Dialect is the provider dialect with the same error format, such as
	// model.DialectChat: errors of its providers are passed on unchanged. "" = none.
	Dialect string
	// Object returns the JSON object of an error. Required.
	Object func(Error) any
}

// Error is an error in the words of an API.
type Error struct {
	Type, Code string // "" = none
	Message    string
	Param      string // the part of the request that is wrong; "" = none
	RetryAfter int    // in seconds; 0 = not known

	// The MCP server that the error is about, its URL, and the key of the
	// configuration that can help; "" = none.
	Server, URL, Setting string
}

// Write answers with err. An error that is not a [fault.Error] is hidden.
func (x *Errors) Write(w http.ResponseWriter, err error) {
	f := fault.From(err)
	if n := seconds(f.RetryAfter); n > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(n))
	}
	fault.Note(w, f.Reason)
	write(w, statuses[f.Code], append(x.Body(f), '\n'))
}

// Body returns the JSON of the error object, without a line end. An error that is not a
// [fault.Error] is hidden.
func (x *Errors) Body(err error) []byte {
	f := fault.From(err)
	return x.encode(Error{
		Type: x.Types[f.Code], Code: x.code(f.Reason), Message: f.Message, Param: f.Param, RetryAfter: seconds(f.RetryAfter),
		Server: f.Server, URL: f.URL, Setting: f.Setting,
	})
}

// code returns the API's word for a reason.
func (x *Errors) code(reason string) string {
	if word, ok := x.Codes[reason]; ok {
		return word
	}
	return reason
}

func (x *Errors) encode(e Error) []byte {
	body, _ := Marshal(x.Object(e)) // strings and numbers: cannot fail
	return body
}

// seconds rounds up: a client that retries too early is refused again.
func seconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }

// Gone returns the error of a request that ended because its client has left. Only the log of requests gets it.
func Gone(err error) error {
	return &fault.Error{Code: fault.Unavailable, Reason: "caller_gone", Message: "the request was not completed: its client has left, or the gateway is stopping", RetryAfter: time.Second, Err: err}
}

// Failed returns the error to answer with: one of the store in words for the caller, see [Refused], any
// other as it is. It logs what the caller does not get. A nil err stays nil.
func Failed(log *slog.Logger, err error, about ...Thing) error {
	for _, thing := range about {
		err = Refused(err, thing)
	}
	if err != nil && fault.From(err).Code == fault.Internal {
		err = refusedFile(log, Refused(err, Thing{}))
	}
	answer := err
	var capped *org.CapError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &capped):
		return journal.Capped(capped)
	case errors.Is(err, org.ErrUnavailable):
		answer = fault.New(fault.Unavailable, "store_unavailable", "the gateway cannot use its database at the moment; try again later")
	case errors.Is(err, context.DeadlineExceeded):
		answer = fault.New(fault.Unavailable, "store_unavailable", "the gateway did not complete the request in time; try again later")
	case fault.From(err).Code != fault.Internal:
		return err
	case errors.Is(err, context.Canceled):
		return Gone(err)
	}
	log.Error("request failed", "error", err)
	return answer
}

// Marshal encodes v as JSON without a line end. It does not escape HTML: answers are
// never interpreted as HTML.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// WriteJSON answers with v as JSON. If v cannot be encoded, it returns an error and has
// written nothing.
func WriteJSON(w http.ResponseWriter, status int, v any) error {
	body, err := Marshal(v)
	if err != nil {
		return err
	}
	WriteMarshaled(w, status, body)
	return nil
}

// WriteStored is WriteJSON for an answer about what is stored, which can be large. It is charged
// to the caller until the client has read it, and counts for the large answers of the key.
func WriteStored(w http.ResponseWriter, caller caller.Caller, status int, v any) error {
	body, err := Marshal(v)
	if err != nil {
		return err
	}
	return WriteHeld(w, caller, status, body)
}

// WriteMade is WriteJSON for an answer about a change that was made: it is charged to the caller, and written whether or
// not there is room for it. Who makes a key sees it only here.
func WriteMade(w http.ResponseWriter, caller caller.Caller, status int, v any) error {
	body, err := Marshal(v)
	if err != nil {
		return err
	}
	caller.Account.Add(len(body))
	defer caller.Account.Release(len(body))
	WriteMarshaled(w, status, body)
	return nil
}

// WriteHeld is WriteStored for an object that [Marshal] has encoded.
func WriteHeld(w http.ResponseWriter, caller caller.Caller, status int, body []byte) error {
	done, err := caller.Hold(len(body))
	if err != nil {
		return err
	}
	defer done()
	WriteMarshaled(w, status, body)
	return nil
}

// WriteMarshaled is WriteJSON for an object that [Marshal] has encoded: while a client reads
// slowly, only the bytes are held.
func WriteMarshaled(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	write(w, status, append(body, '\n')) // a terminal shows its prompt on a line of its own
}

// write answers with a body, which is JSON unless the header has another type.
func write(w http.ResponseWriter, status int, body []byte) {
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // after an error the client has left
}
