package demo

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// MaxBody is the longest request body, in bytes.
const MaxBody = 10 << 20

// Options are the settings of the model. The zero value is ready to use.
type Options struct {
	Model string           // the name in the list of models; empty: "demo". Every name is answered to.
	Delay time.Duration    // between the words of a stream; 0 is none
	Now   func() time.Time // the clock of the created fields; nil: time.Now
}

// New returns the model: POST …/chat/completions, streamed or not, and GET
// …/models, below any base path. Credentials are not looked at.
func New(o Options) http.Handler {
	o.Model = cmp.Or(o.Model, "demo")
	if o.Now == nil {
		o.Now = time.Now
	}
	return &handler{o}
}

type handler struct{ o Options }

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/chat/completions"):
		h.only(w, r, http.MethodPost, h.complete)
	case strings.HasSuffix(r.URL.Path, "/models"):
		h.only(w, r, http.MethodGet, h.models)
	default:
		writeError(w, &requestError{status: http.StatusNotFound, message: "the demo model serves /chat/completions and /models"})
	}
}

func (h *handler) only(w http.ResponseWriter, r *http.Request, method string, serve http.HandlerFunc) {
	if r.Method != method {
		w.Header().Set("Allow", method)
		writeError(w, &requestError{status: http.StatusMethodNotAllowed, message: "use " + method})
		return
	}
	serve(w, r)
}

func (h *handler) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{
		"object": "list",
		"data":   []any{map[string]any{"id": h.o.Model, "object": "model", "created": h.o.Now().Unix(), "owned_by": "turnpike-demo"}},
	})
}

func (h *handler) complete(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if err != nil {
		writeError(w, bodyError(err))
		return
	}
	req, err := decode(body)
	if err != nil {
		writeError(w, err)
		return
	}
	a := answer{reply: play(req, body), request: req, created: h.o.Now().Unix(), delay: h.o.Delay}
	if req.Stream {
		a.stream(r.Context(), w)
		return
	}
	writeJSON(w, http.StatusOK, a.whole())
}

// requestError is a refusal in OpenAI's shape.
type requestError struct {
	status  int
	param   string
	code    string
	message string
}

func (e *requestError) Error() string { return e.message }

func invalid(param, message string) error {
	return &requestError{status: http.StatusBadRequest, param: param, message: message}
}

func bodyError(err error) error {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return &requestError{status: http.StatusRequestEntityTooLarge, message: "the request body is too large"}
	}
	return invalid("", "the request body could not be read")
}

func writeError(w http.ResponseWriter, err error) {
	e := &requestError{status: http.StatusInternalServerError, message: "internal error"}
	errors.As(err, &e)
	orNull := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	writeJSON(w, e.status, map[string]any{"error": map[string]any{
		"message": e.message, "type": "invalid_request_error", "param": orNull(e.param), "code": orNull(e.code),
	}})
}

// writeJSON ignores a failed write: the caller has gone.
func writeJSON(w http.ResponseWriter, status int, v any) {
	data := marshal(v)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(data)
}

// marshal writes values that this package made, all of which JSON can say.
func marshal(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic("demo: " + err.Error())
	}
	return data
}
