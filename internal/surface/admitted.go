package surface

import (
	"net/http"

	"github.com/turnpike-gateway/turnpike/internal/caller"
)

// Admitted returns an endpoint that calls serve when the request is admitted to the store:
// see [caller.Admission]. The next request of the org is admitted when the answer begins, so
// a client that reads slowly delays no other. It is for endpoints that read the store.
func Admitted(serve Endpoint) Endpoint {
	return func(w http.ResponseWriter, r *http.Request, caller caller.Caller) error {
		leave, err := caller.Admit(r.Context())
		if err != nil {
			return err
		}
		defer leave()
		return serve(&admittedWriter{w, leave}, r, caller)
	}
}

// admittedWriter calls leave before the answer begins.
type admittedWriter struct {
	http.ResponseWriter
	leave func()
}

// WriteHeader implements http.ResponseWriter.
func (w *admittedWriter) WriteHeader(status int) {
	w.leave()
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *admittedWriter) Write(p []byte) (int, error) {
	w.leave()
	return w.ResponseWriter.Write(p)
}

// Unwrap is for [http.ResponseController].
func (w *admittedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
