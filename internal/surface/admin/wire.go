package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
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

// strict decodes a body that may have no other members.
func strict(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fault.New(fault.Invalid, "invalid_value", "the request body does not fit: %v", err)
	}
	return nil
}

// mergePatch applies the request's body to the top-level members of current and
// returns what is to be read again. A member that is null goes back to its
// default.
func mergePatch(r *http.Request, current any) ([]byte, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	var patch, merged map[string]json.RawMessage
	if err := json.Unmarshal(body, &patch); err != nil || patch == nil {
		return nil, fault.New(fault.Invalid, "invalid_value", "the request body must be a JSON object")
	}
	text, err := json.Marshal(current)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &merged); err != nil {
		return nil, err
	}
	for name, value := range patch {
		merged[name] = value
	}
	for name, value := range merged {
		if string(value) == "null" {
			delete(merged, name)
		}
	}
	return json.Marshal(merged)
}

// named says which thing is missing or there already.
func named(err error, kind, name string) error {
	switch {
	case errors.Is(err, org.ErrNotFound):
		return fault.New(fault.NotFound, "not_found", "there is no %s called %q", kind, name)
	case errors.Is(err, org.ErrExists):
		return fault.New(fault.Conflict, "exists", "there is a %s called %q already", kind, name)
	}
	return err
}

func isDeclared(kind, name string) error {
	return fault.New(fault.Conflict, "declared", "the %s %q is declared in the configuration file; change it there", kind, name)
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
		f = fault.New(fault.Unavailable, "store_unavailable", "the gateway cannot store anything at the moment; try again later")
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
	writeJSON(w, statuses[f.Code], errorBody{errorObject{f.Reason, f.Message, f.Param, secs}})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":{"code":"internal_error","message":"the answer could not be written"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
