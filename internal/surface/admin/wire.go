package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/jsonlimit"
	"github.com/turnpike-gateway/turnpike/internal/org"
)

// MaxBody is the most bytes of a management request, which its server sees to.
const MaxBody = 1 << 20

type list[T any] struct {
	Data []T `json:"data"`
}

type deleted struct {
	ID      string `json:"id"`
	Deleted bool   `json:"deleted"`
}

func readBody(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if !json.Valid(body) {
		return nil, fault.New(fault.Invalid, "invalid_json", "the request body is not valid JSON")
	}
	if err := jsonlimit.Check(body); err != nil {
		return nil, fault.New(fault.Invalid, "json_too_complex", "the request body %v", err)
	}
	return body, nil
}

// mergePatch applies the request's body to the top-level members of current and
// returns what is to be read again. A member that is null is to go back to its
// default. A member that the body gives twice stays there twice, for the reader
// to refuse.
func mergePatch(r *http.Request, current any) ([]byte, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	patch, err := members(body)
	if err != nil {
		return nil, fault.New(fault.Invalid, "invalid_value", "the request body must be a JSON object")
	}
	text, err := json.Marshal(current)
	if err != nil {
		return nil, err
	}
	merged, err := members(text)
	if err != nil {
		return nil, err
	}
	merged = slices.DeleteFunc(merged, func(m member) bool {
		return slices.ContainsFunc(patch, func(p member) bool { return p.name == m.name })
	})
	var b bytes.Buffer
	for _, m := range append(merged, patch...) {
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, ",%s:%s", name, m.value)
	}
	return append(append([]byte("{"), bytes.TrimPrefix(b.Bytes(), []byte(","))...), '}'), nil
}

// member is one line of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// members returns the members of a JSON object in their order.
func members(object []byte) (out []member, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("not a JSON object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: name.(string)} // as JSON has it
		if err := d.Decode(&m.value); err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// named says which thing is missing or there already.
func named(err error, kind, name string) error {
	switch {
	case errors.Is(err, org.ErrChanged):
		return fault.New(fault.Conflict, "changed_meanwhile", "another request changed the %s %q at the same time; read it again and repeat the request", kind, name)
	case errors.Is(err, org.ErrNotFound):
		return fault.New(fault.NotFound, "not_found", "there is no %s called %q", kind, name)
	case errors.Is(err, org.ErrExists):
		return fault.New(fault.Conflict, "exists", "the %s %q already exists; choose another name", kind, name)
	}
	var capped *org.CapError
	if errors.As(err, &capped) {
		return fault.New(fault.Conflict, "cap_reached", "%v", capped)
	}
	return err
}

func isDeclared(kind, name string) error {
	return fault.New(fault.Conflict, "declared", "the %s %q is declared in the configuration file and can only be changed there", kind, name)
}

// statuses maps codes to the status of the answer.
var statuses = map[fault.Code]int{
	fault.Invalid: http.StatusBadRequest, fault.Unprocessable: http.StatusUnprocessableEntity, fault.TooLarge: http.StatusRequestEntityTooLarge,
	fault.Header: http.StatusRequestHeaderFieldsTooLarge, fault.MediaType: http.StatusUnsupportedMediaType,
	fault.Timeout: http.StatusRequestTimeout, fault.Misdirected: http.StatusMisdirectedRequest,
	fault.Unauthorized: http.StatusUnauthorized, fault.Forbidden: http.StatusForbidden, fault.NotFound: http.StatusNotFound,
	fault.Method: http.StatusMethodNotAllowed, fault.Conflict: http.StatusConflict, fault.Limited: http.StatusTooManyRequests,
	fault.Upstream: http.StatusBadGateway, fault.Unavailable: http.StatusServiceUnavailable, fault.Internal: http.StatusInternalServerError,
}

type errorBody struct {
	Error errorObject `json:"error"`
}

type errorObject struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Param   string `json:"param,omitempty"`

	RetryAfterSecs int `json:"retry_after_secs,omitempty"`
}

func (h *Handler) writeError(w http.ResponseWriter, err error) {
	f := fault.From(err)
	if errors.Is(err, org.ErrUnavailable) {
		h.o.Log.Error("management request failed", "error", err)
		f = fault.New(fault.Unavailable, "store_unavailable", "the gateway cannot write to its database; try again later")
	}
	if errors.Is(err, context.DeadlineExceeded) {
		h.o.Log.Error("management request failed", "error", err)
		f = fault.New(fault.Unavailable, "store_unavailable", "the gateway did not complete the request in time; try again later")
	}
	if f.Code == fault.Internal {
		h.o.Log.Error("management request failed", "error", err)
	}
	WriteError(w, f)
}

// WriteError answers with err in this API's form.
func WriteError(w http.ResponseWriter, err error) {
	f := fault.From(err)
	secs := int((f.RetryAfter + time.Second - 1) / time.Second) // rounded up: who comes back too early is refused again
	if secs > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(secs))
	}
	fault.Note(w, f.Reason)
	writeJSON(w, statuses[f.Code], errorBody{errorObject{f.Reason, f.Message, f.Param, secs}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":{"code":"internal_error","message":"the response could not be encoded"}}`)
	}
	body = append(body, '\n') // a terminal shows its prompt on a line of its own
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
